"""Functions in a fork: what they return, those that wait for ever, those that die."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from cudaguard.system.aside import AFTERWARDS, NoAnswer, aside
from cudaguard.system.processes import state, waits_for

from ..conftest import clean_environment
from ..dead_disk import waiting_is_told

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="it takes fork")


def test_each_returns_what_it_returns():
    found = list(aside([os.getpid, lambda: "x" * 300_000, list, lambda: None], 60))
    assert found[0] != os.getpid()
    assert found[1:] == ["x" * 300_000, [], None]
    with pytest.raises(ChildProcessError):
        os.waitpid(found[0], 0)  # it has been buried


@waiting_is_told
def test_one_that_waits_is_given_up_and_the_others_are_run(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    first, stuck, last = aside([lambda: 1, pipe.read_bytes, lambda: 3], 3)
    assert (first, last) == (1, 3)
    assert isinstance(stuck, NoAnswer)
    assert stuck.why.startswith(f"it has not ended within 3 s, waiting for {pipe}: ")
    assert 3 <= stuck.seconds < 30


def test_one_that_computes_for_ever_names_no_file():
    (stuck,) = aside([lambda: [None for _ in iter(int, 1)]], 0.5)
    assert stuck.why == "it has not ended within 0.5 s"


@pytest.mark.incidents
def test_others_have_less_time_once_one_has_waited():
    found = list(aside([lambda: time.sleep(60)] * 2, AFTERWARDS + 1))
    assert [one.why for one in found] == [
        f"it has not ended within {limit:g} s" for limit in (AFTERWARDS + 1, AFTERWARDS)
    ]


def test_one_that_dies():
    died, after = aside([lambda: os._exit(1), lambda: 2], 60)
    assert (died.why, after) == ("its process has died", 2)


def test_what_it_has_started_is_ended_with_it(tmp_path):
    told = tmp_path / "pid"

    def starts():
        with subprocess.Popen(["sleep", "600"]) as child:
            told.write_text(str(child.pid))

    list(aside([starts], 1))
    deadline = time.monotonic() + 30
    while is_there(int(told.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_there(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of Linux")
def test_it_is_ended_when_this_process_is_killed(tmp_path):
    told = tmp_path / "pid"
    code = f"""
import os, time
from cudaguard.system.aside import aside
def waits():
    with open({str(told)!r}, "w") as file:
        file.write(f"{{os.getpid()}}.")
    time.sleep(600)
list(aside([waits], 600))
"""
    with subprocess.Popen([sys.executable, "-c", code], env=clean_environment()) as ours:
        until(lambda: told.exists() and told.read_text().endswith("."))
        ours.kill()
    pid = told.read_text().rstrip(".")
    until(lambda: state(int(pid)) in ("", "Z"))


def until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_without_a_further_process_it_is_done_here(child):
    code = """
        import os, resource
        from cudaguard.system.aside import aside
        def refused(): raise BlockingIOError(11, "no")
        os.fork = refused
        before = os.listdir("/proc/self/fd")
        assert list(aside([os.getpid], 1)) == [os.getpid()]
        assert os.listdir("/proc/self/fd") == before
    """
    child.python(code)


@pytest.fixture
def waiting(tmp_path):
    """Starts a process that runs some code, until the end of the test."""
    started = []

    def waiting(code):
        command = [sys.executable, "-c", code]
        started.append(subprocess.Popen(command, env=clean_environment()))
        return started[-1].pid

    yield waiting
    for process in started:
        process.kill()
        process.wait()
        assert waits_for(process.pid) == ""


@waiting_is_told
@pytest.mark.parametrize(
    "code",
    [
        "open({0!r})",
        "import os; os.stat({0!r}); os.open({0!r}, os.O_WRONLY)",
        "import os; os.read(os.open({0!r}, os.O_RDWR), 1)",
    ],
)
def test_file_that_a_process_waits_for(tmp_path, waiting, code):
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    pid = waiting(code.format(pipe))
    deadline = time.monotonic() + 30
    while waits_for(pid) != pipe:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("code", ["import time; time.sleep(600)", "while 1: pass"])
def test_process_that_waits_for_no_file(tmp_path, waiting, code):
    begun = tmp_path / "begun"
    pid = waiting(f"open({str(begun)!r}, 'w').close(); {code}" if ";" in code else code)
    deadline = time.monotonic() + 30
    while ";" in code and not begun.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    assert waits_for(pid) == ""


def test_process_with_threads_is_forked_where_warnings_are_errors(child):
    """Else the error is raised in the parent, and the child goes on as a second program."""
    done = child.python(
        """
        import threading
        from cudaguard.system.aside import aside
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        print(list(aside([int, str], 30)))
        """,
        flags=("-W", "error"),
    )
    assert (done.stdout, done.stderr) == ("[0, '']\n", "")
