"""Commands and functions in children: what they return, what they leave behind, those that hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from cudaguard.system import INSTALLED, LOCAL, STANDARD
from cudaguard.system.child import AFTERWARDS, KEPT, NoAnswer, run_command, run_in_fork
from cudaguard.system.packages import origin_of, packages_distributions

from ..processes import clean_environment, state_of, until


def ended(code, limit=60):
    return run_command([sys.executable, "-c", code], clean_environment(), limit)


@pytest.mark.parametrize(
    ("code", "status"),
    [("", 0), ("import sys; sys.exit(7)", 7), ("import os; os.abort()", -signal.SIGABRT)],
)
def test_status_is_the_childs(code, status):
    assert ended(code).status == status


def test_only_the_end_of_an_output_is_kept():
    done = ended("import sys; print('x' * 5_000_000 + 'end'); sys.stderr.write('y' * 9)")
    assert len(done.output) == KEPT
    assert done.output.endswith("end\n")
    assert done.errors == "y" * 9


def test_limit():
    started = time.monotonic()
    done = ended("import time; print('begun', flush=True); time.sleep(600)", limit=1)
    assert (done.status, done.output) == (None, "begun\n")
    assert time.monotonic() - started < 60


def test_limit_for_one_that_has_closed_its_streams():
    assert ended("import os, time; os.close(1); os.close(2); time.sleep(600)", 1).status is None
    assert ended("import os, time; os.close(1); os.close(2); time.sleep(0.2)").status == 0


def test_grandchild_that_holds_the_streams_is_not_waited_for():
    done = ended("import subprocess; print(subprocess.Popen(['sleep', '600']).pid)")
    assert done.status == 0
    assert state_of(int(done.output)) == "Z"


def test_what_cannot_be_started_says_why():
    done = run_command(["/no-such-command"], {}, 20)
    assert (done.status, done.errors) == (127, "No such file or directory\n")


def test_no_core_file_is_left():
    assert ended("import resource; print(*resource.getrlimit(4))").output.startswith("0 ")


def test_nothing_stays_open():
    before = os.listdir("/proc/self/fd")
    ended("print(1)")
    assert os.listdir("/proc/self/fd") == before


def test_there_is_no_input():
    assert ended("import sys; print(repr(sys.stdin.read()))").output == "''\n"


def test_origins(tmp_path):
    (tmp_path / "mine.py").write_text("")
    (tmp_path / "package").mkdir()
    (tmp_path / "native.so").write_bytes(b"")
    path = [str(tmp_path), *sys.path]
    assert origin_of("json.decoder", path) == STANDARD
    assert origin_of("_ctypes", path) == STANDARD
    assert origin_of("sys", path) == STANDARD
    assert origin_of("pytest", path) == INSTALLED
    assert origin_of("mine", path) == LOCAL
    assert origin_of("package.inner", path) == LOCAL
    assert origin_of("native", path) == INSTALLED  # compiled: what it loads is its own
    assert origin_of("not_there_at_all", path) == INSTALLED


def test_looking_for_an_origin_imports_nothing(tmp_path):
    (tmp_path / "loud.py").write_text("1/0")
    assert origin_of("loud", [str(tmp_path)]) == LOCAL
    assert "loud" not in sys.modules


def test_distributions_by_import_name():
    found = packages_distributions(["pytest", "packaging.version", "no_such_thing"])
    assert set(found) == {"pytest", "packaging"}
    assert found["pytest"] == ("pytest", pytest.__version__)


# Starts a process that detaches itself as a daemon does, and tells its id.
DAEMON = """
import os, sys, time
told, end = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.close(told)
    for stream in range(3):
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    os.write(end, str(os.getpid()).encode())
    time.sleep(600)
os.close(end)
daemon = os.read(told, 20).decode()
print(daemon, flush=True)
"""


@pytest.mark.parametrize(
    ("then", "limit"),
    [("", 60), ("time.sleep(600)", 1), ("os.abort()", 60), ("os.execv('/bin/true', ['x'])", 60)],
)
def test_daemon_is_ended_with_the_command(then, limit):
    done = ended(DAEMON + then, limit)
    assert int(done.output) > 0
    assert state_of(int(done.output)) == "Z"


def test_nothing_else_of_the_users_is_ended():
    before = subprocess.Popen(["sleep", "600"], start_new_session=True)
    daemon = subprocess.run(
        [sys.executable, "-c", DAEMON], stdout=subprocess.PIPE, check=True, text=True
    )
    try:
        assert ended(DAEMON).status == 0
        assert state_of(before.pid) != "Z"
        assert state_of(int(daemon.stdout)) != "Z"
    finally:
        before.kill()
        before.wait()
        os.kill(int(daemon.stdout), signal.SIGKILL)


# A program that reads its signals from a descriptor holds them back, and hands that on.
HOLDING_BACK = """
import os, signal, sys
from cudaguard.system.child import run_command
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1})
code = "import signal; print(sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))))"
done = run_command([sys.executable, "-c", code], dict(os.environ), 30)
assert done.status == 0, done
held = sorted(map(int, (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1)))
assert done.output == f"{held}\\n", done
"""


def test_signals_that_are_held_back_where_it_is_started():
    subprocess.run([sys.executable, "-c", HOLDING_BACK], env=clean_environment(), check=True)


def test_of_several_at_once_each_is_ended_alone():
    waiting = DAEMON + "time.sleep(2); print(open(f'/proc/{daemon}/cmdline').read())"
    with ThreadPoolExecutor(4) as pool:
        slow = pool.submit(ended, waiting)
        assert [done.status for done in pool.map(ended, [DAEMON] * 6)] == [0] * 6
        assert slow.result().status == 0, slow.result().errors


def test_all_is_ended_when_this_process_is_killed(tmp_path):
    told = tmp_path / "told"
    inner = (
        DAEMON + f"open({str(told)!r}, 'w').write(f'{{os.getpid()}} {{daemon}}.')\ntime.sleep(600)"
    )
    code = (
        "import os, sys; from cudaguard.system.child import run_command;"
        f"run_command([sys.executable, '-c', {inner!r}], dict(os.environ), 60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], env=clean_environment()) as ours:
        until(lambda: told.exists() and told.read_text().endswith("."))
        ours.kill()
    pids = told.read_text().rstrip(".").split()
    assert len(pids) == 2
    until(lambda: {*map(state_of, pids)} == {"Z"})


def test_output_without_end_of_what_it_has_started_is_not_waited_for():
    started = time.monotonic()
    done = ended("import subprocess; subprocess.Popen(['yes'])", limit=120)
    assert done.status == 0
    assert time.monotonic() - started < 60


# --- functions ----------------------------------------------------------------------


def test_each_returns_what_it_returns():
    found = list(run_in_fork([os.getpid, lambda: "x" * 300_000, list, lambda: None], 60))
    assert found[0] != os.getpid()
    assert found[1:] == ["x" * 300_000, [], None]
    assert state_of(found[0]) == "Z"


def test_one_that_waits_is_given_up_and_the_others_are_run(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    first, stuck, last = run_in_fork([lambda: 1, pipe.read_bytes, lambda: 3], 1)
    assert (first, last) == (1, 3)
    assert isinstance(stuck, NoAnswer)
    assert stuck.why == "it has not ended within 1 s"
    assert 1 <= stuck.seconds < 30


@pytest.mark.incidents
def test_others_have_less_time_once_one_has_waited():
    found = list(run_in_fork([lambda: time.sleep(60)] * 2, AFTERWARDS + 1))
    assert [one.why for one in found] == [
        f"it has not ended within {limit:g} s" for limit in (AFTERWARDS + 1, AFTERWARDS)
    ]


def test_one_that_dies():
    died, after = run_in_fork([lambda: os._exit(1), lambda: 2], 60)
    assert (died.why, after) == ("its process has died", 2)


def test_without_a_further_process_it_is_done_here(child):
    code = """
        import os, resource
        from cudaguard.system.child import run_in_fork
        def refused(): raise BlockingIOError(11, "no")
        os.fork = refused
        before = os.listdir("/proc/self/fd")
        assert list(run_in_fork([os.getpid], 1)) == [os.getpid()]
        assert os.listdir("/proc/self/fd") == before
    """
    child.python(code)


def test_process_with_threads_is_forked_where_warnings_are_errors(child):
    """Else the error is raised in the parent, and the child goes on as a second program."""
    done = child.python(
        """
        import threading
        from cudaguard.system.child import run_in_fork
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        print(list(run_in_fork([int, str], 30)))
        """,
        flags=("-W", "error"),
    )
    assert (done.stdout, done.stderr) == ("[0, '']\n", "")
