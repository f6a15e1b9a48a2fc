"""Processes that die below ``cudaguard run``: a line for each, then their number."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from ..conftest import clean_environment
from ..deaths import FAULT, LINUX_TELLS, SAID

RUN = (sys.executable, "-m", "cudaguard", "run")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are watched on Linux")
KERNEL_TELLS = pytest.mark.skipif(not LINUX_TELLS, reason="a parent alone knows")

PROGRAM = """
    import multiprocessing, subprocess, sys, time
    from concurrent.futures import ProcessPoolExecutor
    from fault import die

    how, start = sys.argv[1:]
    if __name__ == "__main__" and start == "pool":
        with multiprocessing.get_context("fork").Pool(1, die, [how]):
            time.sleep(0.5)
    elif __name__ == "__main__" and start == "subprocess":
        subprocess.run([sys.executable, "-c", f"import fault; fault.die({how!r})"])
    elif __name__ == "__main__" and start == "executor":
        with ProcessPoolExecutor(1, initializer=die if how == "import" else None) as pool:
            error = pool.submit(die, how).exception()  # caught
    elif __name__ == "__main__" and start == "raises":
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            pool.submit(die, how).result()
    elif __name__ == "__main__" and start == "pipe":
        own, other = multiprocessing.Pipe()
        worker = multiprocessing.get_context("fork").Process(target=die, args=[how])
        worker.start()
        other.close()
        own.recv()
    elif __name__ == "__main__":
        worker = multiprocessing.get_context(start).Process(target=die, args=[how])
        worker.start()
        worker.join()
"""
STARTS = ("fork", "spawn", "forkserver", "pool", "subprocess", "executor", "raises", "pipe")


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("how", [*SAID, "none"])
def test_death_is_said_once_and_changes_nothing(child, start, how):
    child.write("fault.py", FAULT)
    script = child.write("train.py", PROGRAM)
    done = child.command(*RUN, script, how, start, timeout=60, check=False)
    assert done.returncode == (start == "pipe" or (start == "raises" and how != "none"))
    said = [line for line in done.stderr.splitlines() if line.startswith("cudaguard")]
    if how == "none" or (how == "import" and start in ("executor", "raises")):  # it has the error
        assert said == []
    elif start in ("raises", "pipe"):
        assert SAID[how] in said[-1]
        assert said[-1].endswith("; train.py then ended with status 1.")
        assert how != "SIGSEGV" or f"{child.folder / 'fault.py'}:5 in die" in done.stderr
    elif start == "pool":  # replaced again and again
        assert all(SAID[how] in line for line in said[:-1] or said)
    else:
        assert [SAID[how] in line for line in said] == [True]


def test_place_of_a_fork_is_where_the_program_was(child):
    """Not what a package imports in it, as torch's DataLoader does numpy.random.

    Nor do libraries that it did not find, or threads that it lacks, kill it with SIGKILL.
    """
    child.write("lib/python3.1/site-packages/loader.py", "def load():\n    import ctypes\n")
    script = child.write("train.py", """
        import ctypes, os, sys
        sys.path.insert(0, "lib/python3.1/site-packages")
        import loader
        try: ctypes.CDLL("libof_no_package.so.1")
        except OSError: pass
        if os.fork() == 0:
            loader.load()
            os.kill(os.getpid(), 9)
        sys.exit(os.wait()[1] != 0)
    """)  # fmt: skip
    done = child.command(*RUN, script, check=False)
    assert " was killed (SIGKILL) after it was forked, at train.py:7" in done.stderr
    assert "libof_no_package" not in done.stderr


def test_thousand_deaths_are_ten_lines_and_a_number(child):
    code = """
        import os, signal
        for number in range(1000):
            how = signal.SIGKILL if number % 4 else signal.SIGSEGV
            pid = os.fork() or os.kill(os.getpid(), how)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            os.kill(pid, signal.SIGKILL)  # too late, as uvicorn does
            os.waitpid(pid, 0)
    """
    done = child.command(*RUN, child.write("train.py", code), timeout=120)
    *lines, last = done.stderr.splitlines()
    told = ": 1,000 processes that the program had started died: 250 SIGSEGV, 750 SIGKILL."
    assert (len(lines), last.endswith(told)) == (10, True)


def test_child_that_is_killed_on_purpose_is_not_told(child):
    """Nor one that is no Python; and what is followed still looks like a function of `os`."""
    code = """
        import multiprocessing, os, pickle, subprocess, time
        worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=[60])
        worker.start()
        worker.kill()
        worker.join()
        subprocess.run(["sh", "-c", "kill -SEGV $$"])
        class Holder:
            wait = os.waitpid
        child = os.fork() or os._exit(3)
        print(Holder().wait(child, 0)[1] >> 8, pickle.loads(pickle.dumps(os.kill)) is os.kill)
    """
    done = child.command(*RUN, child.write("train.py", code), timeout=60)
    assert (done.stdout, done.stderr) == ("3 True\n", "")


def test_daemon_whose_parent_had_a_clean_end_is_told(child):
    code = """
        import os, time
        from fault import die
        if not os.fork():
            if not os.fork():
                time.sleep(0.3)
                die("SIGSEGV")
            os._exit(0)
        os.wait()
        time.sleep(2)
    """
    child.write("fault.py", FAULT)
    done = child.command(*RUN, child.write("train.py", code), timeout=60)
    assert re.fullmatch(r"cudaguard run: process \d+ (.*)\.\n", done.stderr)[1] == SAID["SIGSEGV"]


def test_run_below_a_run_is_reported_once(child):
    """Also where the inner one is the program itself; with a limit it has a report of its own."""
    child.write("fault.py", FAULT)
    script = child.write("train.py", "import fault; fault.die('SIGSEGV')")
    code = f"import subprocess; subprocess.run({[*map(str, (*RUN, script))]})"
    done = child.command(*RUN, "-c", code, timeout=60)
    assert re.fullmatch(r"cudaguard run: process \d+ (.*)\.\n", done.stderr)[1] == SAID["SIGSEGV"]
    done = child.command(*RUN, *RUN[1:], script, check=False, timeout=60)
    assert (done.returncode, done.stderr.count("crashed (SIGSEGV)")) == (-signal.SIGSEGV, 1)


@pytest.mark.parametrize("is_told", [pytest.param(True, marks=KERNEL_TELLS), False])
def test_shell_that_hides_who_was_killed(child, is_told):
    """As mpirun does. Where the kernel does not tell, its status and each rank's last are known."""
    die = "time.sleep(0.5)  # it takes a moment to be heard of\nos.kill(os.getpid(), 9)"
    child.write("rank.py", f"import ctypes, os, time\nctypes.CDLL('libm.so.6')\n{die}")
    script = child.write("job.sh", f"#!/bin/sh\n{sys.executable} rank.py\nexit $?")
    script.chmod(0o755)
    old = "import fcntl; del fcntl.ioctl; from cudaguard.tools.main import main; exit(main())"
    run = RUN if is_told else (sys.executable, "-c", old, "run")
    done = child.command(*run, script, env={"RANK": "1", "WORLD_SIZE": "2"}, check=False)
    assert done.returncode == 137
    last = r"after loading libm.so.6, at rank.py:2"
    if is_told:
        said = rf"run: rank 1 of 2 \(process \d+\) was killed \(SIGKILL\) {last}; job.sh then ended"
        assert re.search(said, done.stderr)
    else:
        assert "job.sh ended with status 137: probably a process that it had" in done.stderr
        assert re.search(f"rank 1 of 2 .* was last seen {last}", done.stderr)
    assert "SIGKILL, sender unknown" in done.stderr or "out of memory" in done.stderr


@KERNEL_TELLS
@pytest.mark.parametrize("is_told", [True, False])
def test_killed_below_a_program_that_tells_nobody(child, is_told):
    """As by Ray's raylet, 0.2 s after SIGTERM: only where memory was short, and not at its end."""
    worker = "import os, sys, time; print(os.getpid(), flush=True); time.sleep(100)"
    raylet = """trap 'kill -9 $!; exit' TERM; "$0" -c "$1" & wait; sleep 9 & wait"""
    code = f"""
        import os, signal, subprocess, sys
        def start():
            shell = ["sh", "-c", {raylet!r}, sys.executable, {worker!r}]
            raylet = subprocess.Popen(shell, stdout=subprocess.PIPE, preexec_fn=int)
            return raylet, int(raylet.stdout.readline())
        first, pid = start()
        first.terminate(), first.wait()  # takes its worker along
        second, worker = start()
        knows = f"grep -qsx 'Pid:.{{worker}}' /proc/{{os.getppid()}}/fdinfo/*"  # does `run`?
        os.system(f"until {{knows}}; do :; done; kill -9 {{worker}}; while {{knows}}; do :; done")
        print(worker, flush=True)
        second.terminate()
    """
    short = "from cudaguard.system import processes; processes.oom_kills = iter(range(9)).__next__"
    told = (sys.executable, "-c", f"{short}; import cudaguard.tools.main as m; m.main()", "run")
    done = child.command(*(told if is_told else RUN), child.write("job.py", code))
    said = re.findall(r"cudaguard run: process (\d+) was killed \(SIGKILL\)", done.stderr)
    assert said == (done.stdout.split() if is_told else []), done.stderr


@pytest.mark.slow
def test_reader_that_is_stuck_holds_nothing_up(child):
    """Signals are handed on, and limits kept, though nobody reads what is said of the dead."""
    code = """
        import os, signal, time
        for _ in range(3):
            os.fork() or os.kill(os.getpid(), signal.SIGKILL)
            os.wait()
        print(os.getpid(), flush=True)
        time.sleep(100)
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while os.write(writing, b"." * 4096):
            pass
    os.set_blocking(writing, True)
    run = (*RUN, "--timeout", "14", child.write("train.py", code))
    streams = {"stdout": subprocess.PIPE, "stderr": writing}
    process = subprocess.Popen(run, cwd=child.folder, env=clean_environment(), **streams)
    os.close(writing)
    try:
        pid = int(process.stdout.readline())
        deadline = time.monotonic() + 60
        while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not os.path.exists(f"/proc/{pid}")
        with open(reading, closefd=False) as file:
            said = file.read().lstrip(".")
        assert process.wait(60) == 124
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        os.close(reading)
    assert said.count("was killed (SIGKILL) after it was forked, at train.py:4.\n") == 3
    assert "train.py timed out after 14" in said
