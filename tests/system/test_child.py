"""Children with a limit: what they leave behind, how much of their output is kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from cudaguard.system.child import KEPT, run
from cudaguard.system.keeper import start
from cudaguard.system.packages import INSTALLED, LOCAL, STANDARD, distributions_of, origin_of

from ..conftest import clean_environment


def ended(code, limit=60):
    return run([sys.executable, "-c", code], clean_environment(), limit)


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
    done = ended("import time; print('begun', flush=True); time.sleep(600)", limit=3)
    assert (done.status, done.output) == (None, "begun\n")
    assert time.monotonic() - started < 60


def test_limit_for_one_that_has_closed_its_streams():
    assert ended("import os, time; os.close(1); os.close(2); time.sleep(600)", 1).status is None
    assert ended("import os, time; os.close(1); os.close(2); time.sleep(0.2)").status == 0


def test_grandchild_that_holds_the_streams_is_not_waited_for():
    done = ended("import subprocess; print(subprocess.Popen(['sleep', '600']).pid)")
    assert done.status == 0
    with pytest.raises(ProcessLookupError):  # noqa: PT012  # until init has buried it
        for _ in range(100):
            os.kill(int(done.output), 0)
            with open(f"/proc/{int(done.output)}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    raise ProcessLookupError
            time.sleep(0.05)


def test_nothing_stays_open():
    before = os.listdir("/proc/self/fd")
    ended("print(1)")
    assert os.listdir("/proc/self/fd") == before


def test_what_cannot_be_started():
    with pytest.raises(FileNotFoundError, match="No such file or directory: '/no-such-command'"):
        run(["/no-such-command"], {}, 20)


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
    found = distributions_of(["pytest", "packaging.version", "no_such_thing"])
    assert set(found) == {"pytest", "packaging"}
    assert found["pytest"] == ("pytest", pytest.__version__)


def test_core_files_are_not_left(tmp_path):
    runner = os.path.join("cudaguard", "tools", "bisect", "_bisect", "runner.py")
    script = tmp_path / "limit.py"
    script.write_text("import resource; print(resource.getrlimit(resource.RLIMIT_CORE)[0])")
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    command = [sys.executable, os.path.join(root, runner), "script", str(script)]
    done = subprocess.run(command, env=clean_environment(), capture_output=True, check=True)
    assert done.stdout == b"0\n"


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


def is_there(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("then", "limit"),
    [("", 60), ("time.sleep(600)", 3), ("os.abort()", 60), ("os.execv('/bin/true', ['x'])", 60)],
)
def test_daemon_is_ended_with_the_command(then, limit):
    done = ended(DAEMON + then, limit)
    assert int(done.output) > 0
    assert not is_there(int(done.output))


def test_nothing_else_of_the_users_is_ended():
    before = subprocess.Popen(["sleep", "600"], start_new_session=True)
    daemon = subprocess.run(
        [sys.executable, "-c", DAEMON], stdout=subprocess.PIPE, check=True, text=True
    )
    try:
        assert ended(DAEMON).status == 0
        assert is_there(before.pid)
        assert is_there(int(daemon.stdout))
    finally:
        before.kill()
        before.wait()
        os.kill(int(daemon.stdout), signal.SIGKILL)


def test_id_of_the_command_that_another_has_got_by_now():
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as another:
        try:
            code = f"from cudaguard.system.keeper import _end_all; _end_all({another.pid})"
            subprocess.run([sys.executable, "-c", code], env=clean_environment(), check=True)
            assert another.poll() is None
            assert is_there(another.pid)
        finally:
            another.kill()


def test_all_is_ended_also_when_nobody_is_left_to_be_told():
    """As when we are killed at the moment at which the command ends."""
    report, end = os.pipe()
    os.close(report)
    keeper = start([sys.executable, "-c", DAEMON], clean_environment(), end)
    os.close(end)
    with keeper:
        daemon = int(keeper.stdout.readline())
        keeper.stdout.read()  # the command has ended
        time.sleep(0.2)
        keeper.stdin.close()
    until(lambda: not is_there(daemon))


# A program that reads its signals from a descriptor holds them back, and hands that on.
HOLDING_BACK = """
import os, signal, sys
from cudaguard.system.child import run
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1})
code = "import signal; print(sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))))"
done = run([sys.executable, "-c", code], dict(os.environ), 30)
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
        "import os, sys; from cudaguard.system.child import run;"
        f"run([sys.executable, '-c', {inner!r}], dict(os.environ), 60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], env=clean_environment()) as ours:
        until(lambda: told.exists() and told.read_text().endswith("."))
        ours.kill()
    pids = told.read_text().rstrip(".").split()
    assert len(pids) == 2
    until(lambda: not any(is_there(int(pid)) for pid in pids))


def test_output_without_end_of_what_it_has_started_is_not_waited_for():
    started = time.monotonic()
    done = ended("import subprocess; subprocess.Popen(['yes'])", limit=120)
    assert done.status == 0
    assert time.monotonic() - started < 60


def until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it has not come to that within 30 s"
        time.sleep(0.02)
