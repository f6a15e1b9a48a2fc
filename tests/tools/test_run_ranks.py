"""``cudaguard run`` of a job with several processes tells which of them died first, and of what."""

from __future__ import annotations

import os
import sys

import pytest

from ..documents import valid

RUN = (sys.executable, "-m", "cudaguard", "run")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are watched on Linux")

# Starts ranks as launchers do: the first that fails ends the others, and the launcher.
LAUNCHER = """
    import os, subprocess, sys, time

    class ChildFailedError(Exception):
        pass

    ranks = []
    for rank in range(3):
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "3"}
        ranks.append(subprocess.Popen([sys.executable, *sys.argv[2:]], env=env))
    while None in (ends := [process.poll() for process in ranks]) and not any(ends):
        time.sleep(0.02)
    for process in ranks:
        if process.poll() is None:
            process.terminate()
    failed = any([process.wait() for process in ranks])
    if failed and sys.argv[1] == "raises":
        raise ChildFailedError("rank failed")
    sys.exit(failed)
"""


@pytest.fixture
def job(child):
    """Runs three ranks under a launcher; returns (process, report in words, document)."""
    launcher = child.write("launcher.py", LAUNCHER)

    def job(source, how="raises"):
        program = child.write("train.py", source)
        report = child.folder / "report.json"
        done = child.command(
            *RUN, "--report", report, launcher, how, program, check=False, timeout=60
        )
        text = done.stderr.partition("\ncudaguard run: ")[2]
        return done, text, valid("run", report.read_text(encoding="utf-8"))

    return job


CRASH = """
    import ctypes, os, threading, time

    def waits():
        time.sleep(60)

    for number in range(2):
        threading.Thread(target=waits, daemon=True).start()
    if os.environ["RANK"] == "1":
        {die}
    time.sleep(60)
"""


def test_rank_that_dies_of_a_fault(job, child):
    done, text, document = job(CRASH.format(die="ctypes.string_at(0)"))
    assert done.returncode == 1
    assert document["ended"]["kind"] == "exited"
    process = document["process"]
    assert (process["rank"], process["ranks"], process["is_program"]) == (1, 3, False)
    if sys.version_info >= (3, 10):  # 3.9 does not tell how it was started
        assert process["program"] == [str(child.folder / "train.py")]
    assert text.startswith(
        f"rank 1 of 3 (process {process['pid']}) crashed (SIGSEGV) at train.py:10; "
        "launcher.py then ended with status 1.\n"
    )
    frames = [(frame["function"], frame["is_program"]) for frame in document["stack"]]
    assert frames == [("string_at", False), ("<module>", sys.version_info >= (3, 10))]
    assert [t["stack"][0]["function"] for t in document["threads"]] == ["waits", "waits"]
    assert "\n  2 other threads" in text
    assert text.count("in waits: time.sleep(60)") == 1  # stacks that are alike are shown once


def test_rank_that_ends_with_an_error(job):
    _, text, document = job(CRASH.format(die='raise ValueError("bad batch")'), "exits")
    assert document["error"]["text"] == "ValueError: bad batch"
    assert text.startswith(
        f"rank 1 of 3 (process {document['process']['pid']}) ended with ValueError"
    )
    assert 'train.py:10 in <module>: raise ValueError("bad batch")' in text
    assert "\n  because: ValueError: bad batch\n" in text


def test_first_of_several_ranks_is_told(job):
    """Rank 1 fails as soon as rank 2 is dead, before the launcher has ended it."""
    source = """
        import ctypes, os, pathlib, time

        def lives(pid):
            try:
                return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][1] != "Z"
            except OSError:
                return False

        rank = os.environ.pop("RANK")  # what counts is what it was started with
        told = pathlib.Path("rank-2")
        if rank == "2":
            told.with_name("half").write_text(str(os.getpid()))
            told.with_name("half").rename(told)
            ctypes.string_at(0)
        while rank == "0" or not told.exists() or lives(told.read_text()):
            time.sleep(0.001)
        1 / 0
    """
    _, text, document = job(source)
    assert document["process"]["rank"] == 2
    assert text.startswith("rank 2 of 3 ")


def test_rank_that_is_killed_leaves_a_hint(job):
    _, text, document = job(CRASH.format(die="os.kill(os.getpid(), 9)"))
    assert document["process"]["rank"] == 1
    assert " was killed (SIGKILL) after importing ctypes, at train.py:2; launcher.py then" in text
    assert "because: killed by SIGKILL, sender unknown" in text


def test_own_error_of_a_program_goes_before_that_of_its_ranks(job, child):
    """A launcher that fails for a reason of its own is told of, not a rank it has ended."""
    child.write("launcher.py", LAUNCHER.replace('raise ChildFailedError("rank failed")', "1 / 0"))
    _, text, document = job(CRASH.format(die='raise ValueError("bad batch")'))
    assert document["process"]["is_program"]
    assert document["error"]["text"].startswith("ZeroDivisionError")
    assert text.count("\n") == 1  # the line for the rank; the rest is in the traceback


@pytest.mark.parametrize("is_exec", [False, True])
def test_shell_wrapper_whose_python_dies(child, is_exec):
    wrapper = child.write("wrapper.sh", f'#!/bin/sh\n{"exec " if is_exec else ""}"$@"\n')
    wrapper.chmod(0o755)
    script = child.write("train.py", "import ctypes\nctypes.string_at(0)\n")
    done = child.command(*RUN, "./wrapper.sh", sys.executable, script, check=False)
    assert done.returncode == (-11 if is_exec else 128 + 11)
    who = "wrapper.sh crashed" if is_exec else "process "
    assert f"\ncudaguard run: {who}" in done.stderr
    assert "crashed (SIGSEGV) at train.py:2" in done.stderr
    assert f"{script}:2 in <module>: ctypes.string_at(0)" in done.stderr
    assert "cudaguard bisect" not in done.stderr  # it would be another program


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8"}, "rank 3 of 8"),
        ({"SLURM_PROCID": "5"}, "rank 5"),
        ({"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "0"}, "rank 1 of 2"),
        ({"RANK": "none"}, None),
    ],
)
def test_rank_of_one_process_per_command(child, variables, expected):
    """As under ``srun cudaguard run train.py``: each rank has a command of its own."""
    code = "import ctypes; ctypes.string_at(0)"
    names = ("RANK", "WORLD_SIZE", "SLURM_PROCID")
    outer = {name: "" for name in names if name in os.environ}
    done = child.command(*RUN, "-c", code, env={**outer, **variables}, check=False)
    who = f"{expected} (process " if expected else "the program crashed"
    assert f"\ncudaguard run: {who}" in done.stderr


@pytest.mark.parametrize("line", ["kill -SEGV $$", "exec {python} -I -c {code}"])
def test_command_whose_pythons_are_out_of_reach_leaves_a_hint(child, line):
    code = "'import ctypes; ctypes.string_at(0)'"
    wrapper = child.write("run.sh", f"#!/bin/sh\n{line.format(python=sys.executable, code=code)}\n")
    wrapper.chmod(0o755)
    done = child.command(*RUN, "./run.sh", check=False)
    assert done.returncode == -11
    assert "because: the command started no guarded Python" in done.stderr


def test_time_limit_shows_all_ranks(job, child):
    launcher = child.folder / "launcher.py"
    program = child.write("train.py", CRASH.format(die="pass"))
    options = ("--timeout", "6")  # time enough for all to have begun
    done = child.command(*RUN, *options, launcher, "raises", program, check=False, timeout=60)
    assert done.returncode == 124
    for rank in range(3):
        assert f"  rank {rank} (process " in done.stderr
    assert done.stderr.count(f"{program}:11 in <module>: time.sleep(60)") == 3
    assert done.stderr.count("2 other threads") == 3
