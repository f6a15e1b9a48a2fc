"""``cudaguard attach`` says where a running program is, and what certainly waits for what."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

from ..documents import valid

ATTACH = (sys.executable, "-m", "cudaguard", "attach")
RUN = (sys.executable, "-m", "cudaguard", "run")
PATIENCE = 30  # seconds
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc of Linux")

LOCKS = """
import threading, time
a = threading.Lock()
b = threading.RLock()
class Queue:
    lock = threading.Lock()
def load():
    with b:
        time.sleep(0.3)
        with a:
            pass
def train():
    with a:
        time.sleep(0.3)
        with b:
            pass
threading.Thread(target=load, name="loader", daemon=True).start()
train()
"""
SLOW = """
import threading
def load():
    import slow
thread = threading.Thread(target=load, name="loader", daemon=True)
thread.start()
thread.join()
"""
PIPE = """
import os, subprocess, sys
reading, writing = os.pipe()
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[writing])
os.close(writing)
os.read(reading, 1)
"""
SLEEP = "import time\ndef step():\n    time.sleep(60)\nstep()"
ITSELF = "import threading\na = threading.Lock()\nwith a:\n    with a:\n        pass"
ONE_LINE = "import time\na = __import__('threading').Lock()\nwith a: time.sleep(60)"
OTHER = "(loader|a thread in load)"
BOTH = f": deadlock between (MainThread and {OTHER}|{OTHER} and MainThread)"
A_BY_MAIN = "waits for the lock a, which MainThread holds, at hang.py:10\n"
B_BY_OTHER = f"MainThread waits for the lock b, which {OTHER} holds, at hang.py:16\n  Python"
IMPORT = f"{OTHER} waits for the import of slow, which MainThread runs, at slow.py:4\n"
READS = r"thread reads from pipe:\[\d+\], descriptor \d+: process \d+ \(cat\) has it open too"
# Name -> hang.py, slow.py, what is said first, what is said besides.
HANGS = {
    "locks": (LOCKS, "", BOTH, A_BY_MAIN),
    "itself": (ITSELF, "", ": deadlock in MainThread", "which MainThread holds, at hang.py:4"),
    "import": ("import slow", SLOW, BOTH, IMPORT),
    "pipe": (PIPE, "", " at hang.py:6", READS),
    "sleep": (SLEEP, "", " in step, at hang.py:3", ""),
    # No deadlock, or none that is certain.
    "held": (LOCKS.replace("sleep(0.3)\n        with b", "sleep(60)\n        with b"), "",
             " in train, at hang.py:14", f"{OTHER} {A_BY_MAIN}  Python"),
    "of objects": (re.sub("with .", "with Queue.lock", LOCKS), "",
                   " in train, at hang.py:1[35]", ""),
    "bound twice": (LOCKS.replace("class", "if []: a = 0\nclass"), "",
                    " in train, at hang.py:16", B_BY_OTHER),
    "let go": (LOCKS.replace("class", "let_go = a.release\nclass"), "",
               " in train, at hang.py:16", B_BY_OTHER),
    "with a limit": ("import slow", SLOW.replace("join()", "join(60)"),
                     " while importing slow, at slow.py:7", f"{IMPORT}  Python"),
    "one line": (ONE_LINE, "", " at hang.py:3", ""),
}  # fmt: skip


@pytest.mark.parametrize("hang", HANGS)
@pytest.mark.parametrize("start", [RUN, (sys.executable,)], ids=["run", "py-spy"])
def test_hang_is_told_with_its_cause(child, hang, start):
    if start != RUN and not spies():
        pytest.skip("py-spy is not installed, or must not look at processes here")
    code, module, first, besides = HANGS[hang]
    child.write("hang.py", code)
    child.write("slow.py", module)
    said = []

    def attach(pid):
        done = child.command(*ATTACH, pid, check=False)
        assert len(said) < PATIENCE, f"{first!r} is not in\n{said[-1]}"
        said.append(f"{done.stdout}{done.stderr}")
        is_first = re.match(f"cudaguard attach: process \\d+ waits{first}\\.\n", said[-1])
        is_there = re.search(besides or "Python stack", said[-1])
        return is_first and is_there and said[-1] in said[:-1]  # it stands still

    ended = child.signaled(*start, "hang.py", number=signal.SIGTERM, once=attach)
    assert ended.returncode == -signal.SIGTERM  # it has gone on
    assert (ended.stdout, ended.stderr) == ("", "")
    assert ("because: " in said[-1]) == bool(besides)
    assert start == RUN or "(loader)" in said[-1] or "loader" not in code + module


def spies():
    tool = shutil.which("py-spy", path=f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")
    own = (tool, "dump", "--pid", str(os.getpid()))
    return tool and subprocess.run(own, check=False, capture_output=True).returncode == 0


def test_timeout_says_the_same(child):
    child.write("hang.py", LOCKS)
    done = child.command(*RUN, "--timeout", "2", "hang.py", check=False)
    assert re.search(rf"hang.py timed out after 2[\d.]* s{BOTH}", done.stderr)
    assert A_BY_MAIN in done.stderr
    assert "cudaguard bisect" not in done.stderr  # no order of imports is the cause


def test_workers_are_shown_and_what_cannot_be_asked_is_not_killed(child):
    """Forks of a program whose own faulthandler is on; one has closed all files."""
    child.write(
        "hang.py",
        """
        import os
        end, own = os.pipe()
        for number in range(3):
            if not os.fork():
                os.closerange(own, own + 1 if number < 2 else 1 << 16)
                os._exit(len(os.read(end, 1)))
        os.wait()
        """,
    )
    said = []

    def attach(pid):
        said.append(child.command(*ATTACH, pid, env={"PATH": "/nowhere"}, check=False).stdout)
        assert len(said) < PATIENCE
        return said[-1].count("was running") >= 2 and len(said) > 2

    start = (sys.executable, "-X", "faulthandler", *RUN[1:], "hang.py")
    ended = child.signaled(*start, number=signal.SIGTERM, once=attach)
    assert (ended.returncode, ended.stderr) == (-signal.SIGTERM, "")
    assert re.match(r"cudaguard attach: process \d+ waits at hang.py:8.\n", said[-1])
    assert "hang.py:7 in <module>" in said[-1]


def test_crash_after_an_answer_is_told_where_it_was(child):
    child.write("hang.py", "import ctypes, time\ntime.sleep(3)\nctypes.string_at(0)")
    said = []

    def attach(pid):
        said.append(child.command(*ATTACH, pid, "--format", "json", check=False).stdout)
        return "waits at hang.py:2" in said[-1]

    done = child.signaled(*RUN, "hang.py", number=signal.SIGCONT, once=attach)
    assert done.returncode == -signal.SIGSEGV
    assert "hang.py crashed (SIGSEGV) at hang.py:3." in done.stderr
    assert done.stderr.count("hang.py:2") == 0
    document = valid("run", said[-1])
    assert (document["tool"], document["ended"]["kind"]) == ("attach", "running")
    assert document["stack"][0]["line"] == 2


# --- what cannot be asked ---------------------------------------------------------------


def test_process_that_is_not_there_or_no_python(child):
    gone = subprocess.Popen(["true"])
    gone.wait()
    sleeping = subprocess.Popen(["sleep", "60"])
    zombie = subprocess.Popen(["true"])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    try:
        for pid, words in (
            (gone.pid, f"no process {gone.pid} is running"),
            (zombie.pid, f"no process {zombie.pid} is running"),
            (-1, "no process -1 is running"),
            (sleeping.pid, f"process {sleeping.pid} (sleep) is not a Python process"),
        ):
            done = child.command(*ATTACH, "--", pid, check=False)
            assert (done.returncode, done.stdout) == (2, "")
            assert done.stderr == f"cudaguard attach: {words}\n  run: pgrep -af python\n"
        done = child.command("sh", "-c", '"$0" "$@" $$; exit 0', *ATTACH)  # is below that shell
        assert "(sh) is not a Python process" in done.stderr
    finally:
        sleeping.kill()
        sleeping.wait()
        zombie.wait()


def test_process_of_another_user(child):
    unshare = shutil.which("unshare")
    user = ("-U", "--map-user=1000")
    probe = unshare and subprocess.run([unshare, *user, "true"], check=False, capture_output=True)
    if os.geteuid() or not probe or probe.returncode:
        pytest.skip("takes root, and namespaces of users")
    theirs = subprocess.Popen(["sleep", "60"], user=65534)
    try:
        done = child.command(unshare, *user, *ATTACH, theirs.pid, check=False)
    finally:
        theirs.kill()
        theirs.wait()
    # Else root would import what lies in the working directory.
    command = f"(cd / && sudo {sys.executable} -m cudaguard attach {theirs.pid})"
    said = f"cudaguard attach: process {theirs.pid} belongs to another user\n  run: {command}\n"
    assert (done.returncode, done.stdout, done.stderr) == (3, "", said)


def test_py_spy_is_missing_or_may_not_look(child, tmp_path):
    python = tmp_path / "bin" / "python"  # beside it there is no py-spy
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    site = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PATH": "/nowhere"}
    child.write("hang.py", "import time; time.sleep(60)")

    def attach(pid, tool=""):
        if tool:
            script = child.write("bin/py-spy", f"#!/bin/sh\necho '{tool}' >&2; exit 1\n")
            script.chmod(0o755)
        done = child.command(python, "-m", "cudaguard", "attach", pid, env=site, check=False)
        assert (done.returncode, done.stdout) == (3, "")
        return done.stderr

    process = subprocess.Popen([sys.executable, child.folder / "hang.py"])
    try:
        missing = attach(process.pid)
        refused = attach(process.pid, "Permission Denied: Try running again with sudo")
    finally:
        process.kill()
        process.wait()
    assert missing == (
        f"cudaguard attach: process {process.pid} can only be read by py-spy, which is not "
        f"installed\n  run: {python} -m pip install py-spy\n"
    )
    assert f"py-spy cannot read process {process.pid}: Permission Denied: Try" in refused
