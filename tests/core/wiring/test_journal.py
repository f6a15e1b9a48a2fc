"""The journal file: one JSON line per event, from every process, and never a broken program."""

from __future__ import annotations

import json
import os

import pytest

RUN = "cudaguard.install(rules=[rule()]); import target; print(order(), found())"


def lines(path):
    """Return the events of a journal."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_every_event_is_one_json_line_with_the_process_id(program):
    path = program.folder / "journal"
    assert (
        program.output(
            RUN + "; print(os.getpid()); cudaguard.uninstall()",
            env={"CUDAGUARD_JOURNAL": str(path)},
        )[0]
        == "needed target "
    )
    events = lines(path)
    assert [(event["kind"], event["name"]) for event in events] == [
        ("install", "fix"),
        ("import", "target"),
        ("prerequisite", "needed"),
        ("imported", "target"),
    ]
    assert events[0].pop("details") == {"woken_by": "install() with settings"}
    assert events[2].pop("details") == {
        "rule": "ORDER1", "verb": "prerequisite", "subject": "needed",
        "how": "imported before target",
    }  # fmt: skip
    for event in events:
        assert set(event) == {"pid", "kind", "name", "time", "thread", "where"}
        assert event["time"] > 1e9
    assert len({event["pid"] for event in events}) == 1
    assert events[1]["where"] == "<string>:2"


def test_lines_are_the_json_that_python_writes(tmp_path):
    """The journal writes it by itself, as `json` is not light."""
    from cudaguard.core.journal import Journal

    details = {"quote": 'a"b\\', "lone": "\udc80", "many": [1, 2.5, (True, False, None)], "in": {}}
    path = tmp_path / "journal"
    journal = Journal(lambda *_: None)
    journal.write_to(str(path))
    journal.note("kind\n", "näme 你", "a.py:1", details)
    text = path.read_text(encoding="ascii")
    (event,) = lines(path)
    assert text == json.dumps(event) + "\n"
    assert event["details"] == {**details, "many": [1, 2.5, [True, False, None]]}
    assert (event["kind"], event["name"]) == ("kind\n", "näme 你")


def test_finding_and_failed_import_are_noted(program):
    program.write("target.py", "raise ImportError('own')\n")
    path = program.folder / "journal"
    program.run(
        "cudaguard.install('observe', rules=[rule()])\ntry:\n    import target\n"
        "except ImportError:\n    pass",
        env={"CUDAGUARD_JOURNAL": str(path)},
    )
    assert [event["kind"] for event in lines(path)] == ["install", "import", "finding", "failed"]


def test_journal_named_in_the_configuration_and_the_variable_beats_it(program):
    config = program.write("c.toml", 'journal = "from-file"\n')
    env = {"CUDAGUARD_CONFIG": str(config)}
    program.output(RUN, env=env)
    assert lines(program.folder / "from-file")
    program.output(RUN, env={**env, "CUDAGUARD_JOURNAL": "from-variable"})
    assert len(lines(program.folder / "from-file")) == len(lines(program.folder / "from-variable"))


def test_percent_p_is_the_process_id_and_a_fork_gets_a_file_of_its_own(program):
    path = program.folder / "j-%p.jsonl"
    parent, child = program.output(
        """
        cudaguard.install(rules=[rule()])
        pid = os.fork()
        if pid == 0:
            import target
            os._exit(0)
        os.waitpid(pid, 0)
        import other
        print(os.getpid())
        print(pid)
        """,
        env={"CUDAGUARD_JOURNAL": str(path)},
    )
    assert [e["kind"] for e in lines(program.folder / f"j-{parent}.jsonl")] == ["install"]
    events = lines(program.folder / f"j-{child}.jsonl")
    assert [e["kind"] for e in events] == ["import", "prerequisite", "imported"]
    assert {e["pid"] for e in events} == {int(child)}


def test_forks_that_share_a_file_do_not_mix_their_lines(program):
    program.output(
        """
        cudaguard.install(rules=[rule()])
        pids = []
        for _ in range(4):
            pid = os.fork()
            if pid == 0:
                for _ in range(100):
                    import target
                    del sys.modules["target"]
                os._exit(0)
            pids.append(pid)
        for pid in pids:
            os.waitpid(pid, 0)
        """,
        env={"CUDAGUARD_JOURNAL": "journal"},
    )
    events = lines(program.folder / "journal")  # fails on a torn line
    assert len(events) == 1 + 4 * (100 * 2 + 1)
    assert len({event["pid"] for event in events}) == 5


def test_process_that_is_killed_loses_no_line(program):
    done = program.run(
        "cudaguard.install(rules=[rule()]); import target; os.kill(os.getpid(), 9)",
        env={"CUDAGUARD_JOURNAL": "journal"},
        check=False,
    )
    assert done.returncode == -9
    assert [e["kind"] for e in lines(program.folder / "journal")][-1] == "imported"


def test_relative_path_is_where_the_program_was_when_the_journal_began(program):
    (program.folder / "sub").mkdir()
    program.output(
        "cudaguard.install(rules=[rule()]); os.chdir('sub'); import target",
        env={"CUDAGUARD_JOURNAL": "journal", "PYTHONPATH": str(program.folder)},
    )
    assert len(lines(program.folder / "journal")) == 4
    assert not (program.folder / "sub" / "journal").exists()


def test_nothing_is_written_after_uninstall_nor_without_a_path(program):
    program.output(
        "cudaguard.install(rules=[rule()]); cudaguard.uninstall(); import target",
        env={"CUDAGUARD_JOURNAL": "journal"},
    )
    assert [e["kind"] for e in lines(program.folder / "journal")][:1] == ["install"]
    assert "import" not in [e["kind"] for e in lines(program.folder / "journal")]
    before = set(os.listdir(program.folder))
    program.output(RUN, env={"CUDAGUARD_JOURNAL": ""})
    assert set(os.listdir(program.folder)) == before


@pytest.mark.parametrize(
    ("path", "evidence"),
    [
        ("/no/such/folder/journal", "No such file or directory"),
        ("/dev/full", "No space left on device"),
        (".", "Is a directory"),
        ("target.py/journal", "Not a directory"),
        ("fifo", "No such device"),
    ],
)
@pytest.mark.parametrize("mode", ["observe", "warn", "fix", "strict"])
def test_journal_that_cannot_be_written_is_told_once_and_given_up(program, mode, path, evidence):
    os.mkfifo(program.folder / "fifo")
    done = program.run(
        f"""
        cudaguard.install({mode!r}, rules=[rule(needs=())])
        import target
        cudaguard.install()
        del sys.modules["target"]
        import target
        print(order(), found())
        print(cudaguard.status().findings[0].evidence)
        """,
        env={"CUDAGUARD_JOURNAL": path},
        timeout=30,
    )
    first, second = done.stdout.splitlines()
    assert first == "target CG806"
    assert evidence in second
    assert done.stderr.count("[CG806]") == (0 if mode == "observe" else 1)


def test_a_file_that_took_the_number_of_a_closed_descriptor_is_let_be(program):
    """Daemons close all descriptors; the next file the program opens gets one of their numbers."""
    assert program.output(
        """
        cudaguard.install(rules=[rule()])
        import other
        os.closerange(3, 64)
        with open("own", "w+b", buffering=0) as own:
            own.write(b"one")
            import target
            own.write(b"two")
        print(order(), open("own").read())
        """,
        env={"CUDAGUARD_JOURNAL": "journal"},
    ) == ["other needed target onetwo"]
    assert [e["name"] for e in lines(program.folder / "journal")][-1] == "target"


def test_no_descriptor_is_kept(program):
    assert program.output(
        """
        before = set(os.listdir("/proc/self/fd"))
        cudaguard.install(rules=[rule()])
        import target
        print(set(os.listdir("/proc/self/fd")) == before)
        """,
        env={"CUDAGUARD_JOURNAL": "journal"},
    ) == ["True"]
