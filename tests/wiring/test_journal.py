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
    for event in events:
        assert set(event) == {"pid", "kind", "name", "time", "thread", "where"}
        assert event["time"] > 1e9
    assert len({event["pid"] for event in events}) == 1
    assert events[1]["where"] == "<string>:2"


def test_memory_and_file_hold_the_same_events(program):
    path = program.folder / "journal"
    (line,) = program.output(
        "import json; cudaguard.install(rules=[rule()]); import target\n"
        "print(json.dumps([event.to_dict() for event in cudaguard.status().events]))",
        env={"CUDAGUARD_JOURNAL": str(path)},
    )
    assert [{k: v for k, v in event.items() if k != "pid"} for event in lines(path)] == json.loads(
        line
    )


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


def test_second_process_appends(program):
    env = {"CUDAGUARD_JOURNAL": "journal"}
    program.output(RUN, env=env)
    once = len(lines(program.folder / "journal"))
    program.output(RUN, env=env)
    assert len(lines(program.folder / "journal")) == 2 * once


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
        ("/no/such/folder/journal", "FileNotFoundError"),
        ("/dev/full", "No space left on device"),
        (".", "IsADirectoryError"),
        ("target.py/journal", "NotADirectoryError"),
        ("fifo", "OSError"),
    ],
)
@pytest.mark.parametrize("mode", ["observe", "warn", "fix", "strict"])
def test_journal_that_cannot_be_written_is_reported_once_and_given_up(
    program, mode, path, evidence
):
    os.mkfifo(program.folder / "fifo")
    done = program.run(
        f"""
        cudaguard.install({mode!r}, rules=[rule(needs=())])
        import target
        cudaguard.install()
        del sys.modules["target"]
        import target
        print(order(), found())
        print(cudaguard.status().findings[0].evidence[0])
        """,
        env={"CUDAGUARD_JOURNAL": path},
        timeout=30,
    )
    first, second = done.stdout.splitlines()
    assert first == "target CG807"
    assert evidence in second
    assert done.stderr.count("[CG807]") == (0 if mode == "observe" else 1)
    assert done.stderr.count("cannot be written") <= 1


def test_program_that_closes_all_descriptors_goes_on(program):
    done = program.run(
        """
        cudaguard.install(rules=[rule()])
        os.closerange(3, 64)
        import target
        print(order())
        """,
        env={"CUDAGUARD_JOURNAL": "journal"},
    )
    assert done.stdout.splitlines() == ["needed target"]
    assert done.stderr.count("[CG807]") == 1


def test_descriptor_is_not_inherited_by_other_programs(program):
    assert program.output(
        """
        import subprocess
        cudaguard.install(rules=[rule()])
        names = subprocess.check_output(
            [sys.executable, "-I", "-c",
             "import os\\n"
             "for f in os.listdir('/proc/self/fd'):\\n"
             "    try: print(os.readlink('/proc/self/fd/' + f))\\n"
             "    except OSError: pass"],
            text=True, close_fds=False)
        own = [os.readlink(f"/proc/self/fd/{f}") for f in os.listdir("/proc/self/fd")
               if os.path.exists(f"/proc/self/fd/{f}")]
        print("journal" in str(own), "journal" in names)
        """,
        env={"CUDAGUARD_JOURNAL": "journal"},
    ) == ["True False"]
