"""Signals, terminals and descriptors: ``cudaguard run`` is in nobody's way."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from ..processes import clean_environment, state_of, until
from ..terminals import Terminal

RUN = (sys.executable, "-m", "cudaguard", "run")
PLAIN = (sys.executable,)
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are watched on Linux")

# Counts what it gets; ends upon SIGTERM, or by itself.
COUNT = """
import os, signal, sys, time
def got(number, _):
    os.write(1, f"got {{signal.Signals(number).name}}\\n".encode())
    if number == signal.SIGTERM:
        sys.exit(9)
for number in {numbers}:
    signal.signal(number, got)
os.write(1, f"ready {{os.getpid()}}\\n".encode())
end = time.time() + 20
while time.time() < end:
    time.sleep(0.01)
"""
COUNTED = ("HUP", "INT", "QUIT", "USR1", "USR2", "WINCH", "CONT", "ALRM", "RTMIN", "TERM")
WAIT = "import os, time; print('ready', os.getpid(), flush=True); time.sleep(60)"


def counting(*names):
    return COUNT.format(numbers=[int(getattr(signal, f"SIG{name}")) for name in names])


@pytest.fixture
def start(child):
    """Starts a command with pipes; what is left of it at the end is killed."""
    started = []

    def start(*command, **how):
        # The record of a command that is killed stays behind.
        nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
        env = clean_environment(TMPDIR=str(child.folder))
        usual = {"stdin": nothing, "stdout": pipe, "stderr": pipe, "cwd": child.folder, "env": env}
        # These tests may run under nohup.
        usual["preexec_fn"] = lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)
        how = {**usual, "text": True, **how}
        process = subprocess.Popen([str(word) for word in command], **how)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def pid_of(process):
    """Wait until the program is ready; return its process id."""
    word, pid = process.stdout.readline().split()
    assert word == "ready"
    return int(pid)


LOOK = """
import json, os, signal
print(json.dumps({
    "handlers": {str(n): str(signal.getsignal(n)) for n in signal.valid_signals()},
    "mask": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))),
    "group": os.getpgid(0) == os.getpgid(os.getppid()),
    "session": os.getsid(0) == os.getsid(os.getppid()),
    "files": sorted(int(n) for n in os.listdir("/proc/self/fd") if int(n) < 500),
    "limits": open("/proc/self/limits").read(),
    "cwd": os.getcwd(), "umask": os.umask(0),
    "threads": len(os.listdir("/proc/self/task")),
}))
"""


@pytest.mark.parametrize("ignored", [(), ("HUP", "INT", "CHLD", "PIPE")])
def test_program_starts_in_the_state_in_which_python_would(start, ignored):
    """Also where whoever started us ignores signals, as nohup and `&` in a script do."""
    first = f"""if True:
        import os, signal, sys
        for name in {ignored!r}:
            signal.signal(getattr(signal, "SIG" + name), signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
        os.open("/dev/null", os.O_RDONLY)
        os.set_inheritable(3, True)
        os.execv(sys.argv[1], sys.argv[1:])"""
    states = []
    for command in (PLAIN, RUN):
        process = start(sys.executable, "-c", first, *command, "-c", LOOK)
        states.append(process.communicate(timeout=20)[0])
        assert process.returncode == 0
    assert states[0] == states[1]


def test_each_signal_is_handed_on_once(start):
    process = start(*RUN, "-c", counting(*COUNTED))
    pid_of(process)
    for name in COUNTED:
        process.send_signal(getattr(signal, f"SIG{name}"))
        assert process.stdout.readline() == f"got SIG{name}\n"
        time.sleep(0.1)  # a second one would be told before the next
    out, err = process.communicate(timeout=20)
    assert (out, err, process.returncode) == ("", "", 9)


def test_signals_that_the_program_sends_are_not_handed_on(start):
    """To its group, and to its parent."""
    code = counting("USR1", "USR2", "TERM").replace(
        'os.write(1, f"ready',
        'os.killpg(0, signal.SIGUSR1); os.kill(os.getppid(), signal.SIGUSR2); os.write(1, f"ready',
    )
    process = start(*RUN, "-c", code, start_new_session=True)
    assert process.stdout.readline() == "got SIGUSR1\n"
    pid_of(process)
    time.sleep(0.2)
    process.terminate()
    assert process.communicate(timeout=20)[0] == "got SIGTERM\n"


@pytest.mark.parametrize("name", ["TERM", "INT", "ABRT"])
def test_program_that_dies_of_it_takes_the_command_along_without_a_word(start, name):
    number = getattr(signal, f"SIG{name}")
    ends = []
    for command in (PLAIN, RUN):
        process = start(*command, "-c", WAIT, start_new_session=True)
        pid_of(process)
        time.sleep(0.2)  # it is to be in its sleep, and not printing any more
        process.send_signal(number)
        ends.append((process.wait(20), process.stderr.read()))
    assert ends[0] == ends[1]
    assert ends[1][0] == -number
    with pytest.raises(ProcessLookupError):  # nobody is left
        os.killpg(process.pid, 0)


def test_kill_9_of_the_command_ends_the_program(start):
    process = start(*RUN, "-c", WAIT)
    pid = pid_of(process)
    process.kill()
    until(lambda: state_of(pid) == "Z")


@pytest.mark.parametrize("by_us", [True, False])
def test_program_that_stops_itself_is_continued(start, by_us):
    """Without a terminal we must not stop along: nobody would continue us."""
    code = "import os; print('ready', os.getpid(), flush=True); os.kill(os.getpid(), 19); print(1)"
    process = start(*RUN, "-c", code, start_new_session=True)
    pid = pid_of(process)
    until(lambda: state_of(pid) == "T")
    os.kill(process.pid if by_us else pid, signal.SIGCONT)
    assert process.wait(20) == 0


def test_report_that_takes_long_can_be_interrupted(start, child):
    """The program has died, and its record is large: the command heeds signals all the same."""
    code = """
import json, os
pid, folder = os.getpid(), os.environ["CUDAGUARD_RUN_FOLDER"]
line = {"pid": pid, "kind": "import", "name": "m", "thread": 1, "where": "y" * 60, "time": 0.0}
with open(os.path.join(folder, "journal"), "a") as journal:
    journal.write((json.dumps(line) + "\\n") * 600_000)
print("ready", pid, flush=True)
os.abort()
"""
    process = start(*RUN, "-c", code)
    pid = pid_of(process)
    until(lambda: state_of(pid) == "Z")
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGABRT
    assert err == "cudaguard run: no report: SIGTERM came while it was written\n"
    assert not [name for name in os.listdir(child.folder) if name.startswith("cudaguard-run-")]


def test_status_is_kept_where_children_are_ignored(start):
    first = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
    first += "os.execv(sys.argv[1], sys.argv[1:])"
    assert start(sys.executable, "-c", first, *RUN, "-c", "raise SystemExit(5)").wait(20) == 5


@pytest.mark.parametrize("streams", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_stay_closed(child, streams):
    code = "import os, sys; open('seen', 'w').write(repr([sys.stdin, sys.stdout, sys.stderr]))"
    seen = []
    for command in (PLAIN, RUN):
        script = f'{" ".join(command)} -c "{code}; os._exit(7)" {streams}; echo $? >status'
        child.command("sh", "-c", script)
        seen.append([(child.folder / name).read_text() for name in ("seen", "status")])
    assert seen[0] == seen[1]
    assert seen[1][1] == "7\n"


def test_pipes_are_the_programs_alone(start):
    """Much passes unchanged; the reader's end and the writer's are seen as under Python."""
    data = bytes(range(256)) * 4_000
    code = "import shutil, sys; shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)"
    process = start(*RUN, "-c", code, stdin=subprocess.PIPE, text=False)
    assert process.communicate(data, timeout=60) == (data, b"")
    code = "import os, time; os.close(0); os.write(1, b'x'); os.close(1); time.sleep(30)"
    process = start(*RUN, "-c", code, stdin=subprocess.PIPE)
    assert process.stdout.read() == "x"
    assert process.poll() is None
    with pytest.raises(BrokenPipeError):
        os.write(process.stdin.fileno(), b"x")
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    process.stdin = None


DAEMON = """
import os, sys, time
if os.fork():
    os._exit(3)
os.setsid()
if os.fork():
    os._exit(0)
os.closerange(0, 1024)
files = [os.open("own%d" % n, os.O_RDWR | os.O_CREAT) for n in range(9)]
for _ in range(3000):
    if os.path.exists("ended"):
        break
    time.sleep(0.02)
import ctypes
os.write(files[0], b"alive")
ctypes.string_at(0)
"""


def test_daemon_outlives_the_command_and_is_let_be(start, child):
    path = child.write("daemon.py", DAEMON)
    process = start(*RUN, path)
    assert process.wait(20) == 3
    child.write("ended", "")  # the daemon waits for that
    first = child.folder / "own0"
    until(lambda: first.exists() and first.read_bytes() == b"alive")
    time.sleep(0.3)
    # What it was told of its last moment must not land in files of its own.
    assert [(child.folder / f"own{n}").read_bytes() for n in range(9)] == [b"alive", *[b""] * 8]


def test_time_limit_ends_what_has_detached_itself_too(start):
    code = """
import os, signal, sys, time
print("ready", os.getpid(), flush=True)
if not os.fork():
    os.setsid()
    if not os.fork():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(1, f"detached {os.getpid()}\\n".encode())
        time.sleep(60)
    os._exit(0)
os.wait()
time.sleep(60)
"""
    process = start(*RUN, "--timeout", "1.5", "-c", code)
    pid_of(process)
    word, pid = process.stdout.readline().split()
    assert word == "detached"
    assert process.wait(30) == 124
    assert state_of(pid) == "Z"


# --- a terminal ----------------------------------------------------------------------


@pytest.fixture
def terminal(start):
    """Starts a command on a terminal."""
    opened = []

    def terminal(*command):
        opened.append(Terminal(start, *command))
        return opened[-1]

    yield terminal
    for one in opened:
        os.close(one.master)


def test_program_has_the_terminal(terminal):
    code = """if True:
        import os
        print([os.isatty(n) for n in range(3)], os.get_terminal_size(), os.tcgetpgrp(0) ==
              os.getpgrp(), os.ttyname(0) == os.ttyname(1), input("? "))"""
    texts = []
    for command in (PLAIN, RUN):
        screen = terminal(*command, "-c", code)
        screen.expect("? ")
        screen.type("typed\n")
        texts.append(screen.rest())
    assert texts[0] == texts[1]
    assert "[True, True, True] os.terminal_size(columns=100, lines=30) True True typed" in texts[1]


def test_keys_and_a_new_size_of_the_window_reach_the_program_once(terminal):
    screen = terminal(*RUN, "-c", counting("INT", "QUIT", "WINCH", "TERM"))
    screen.expect("ready")
    for key, name in (("\x03", "SIGINT"), ("\x1c", "SIGQUIT")):
        screen.type(key)
        screen.expect(f"got {name}")
        time.sleep(0.2)
    screen.resize(40, 120)
    screen.expect("got SIGWINCH")
    time.sleep(0.2)
    screen.process.terminate()
    assert screen.rest() == "\ngot SIGTERM\n"
    assert screen.process.wait(10) == 9


def test_interrupt_ends_both_as_python(terminal):
    ends = []
    for command in (PLAIN, RUN):
        screen = terminal(*command, "-c", WAIT)
        screen.expect("ready")
        time.sleep(0.3)  # it is to be in its sleep, and not printing any more
        screen.type("\x03")
        text = re.sub(r"^ \d+\n", "", screen.rest())
        ends.append((screen.process.wait(10), text))
    assert ends[0] == ends[1]
    assert ends[1][0] == -signal.SIGINT
    assert ends[1][1].count("KeyboardInterrupt") == 1


def test_job_control(terminal):
    """Ctrl-Z, fg, bg, Ctrl-C in a real shell."""
    shell = shutil.which("bash") or pytest.skip("no bash")
    screen = terminal("env", "PS1=$ ", "HISTFILE=", shell, "--norc", "--noprofile", "-i")
    screen.expect("$ ")
    code = "import time; print('rea' + 'dy', flush=True); [time.sleep(0.05) for _ in range(400)]"
    screen.type(f'{" ".join(RUN)} -c "{code}"\n')
    screen.expect("ready")
    screen.type("\x1a")
    screen.expect("Stopped")
    screen.type("jobs -s | wc -l; fg\n")
    screen.expect("1\n")
    screen.expect("cudaguard run -c")
    time.sleep(0.3)
    screen.type("\x1a")
    screen.expect("Stopped")
    screen.type("bg; sleep 0.3; jobs -r | wc -l; fg\n")
    screen.expect("\n1\n")
    time.sleep(0.3)
    screen.type("\x03")
    screen.expect("KeyboardInterrupt")
    screen.type("echo status $?\n")
    screen.expect("status 130")
    screen.type("jobs | wc -l\n")
    screen.expect("0\n")
    screen.type("exit\n")
    screen.rest()


# --- a sandbox that forbids it ----------------------------------------------------------

# Runs a command that gets EPERM from these system calls; argv[1] is the first letter of a name.
DENY = """
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int count, char **words) {
    int number = words[1][0] == 'k' ? SYS_kill : words[1][0] == 'm' ? SYS_rt_sigprocmask
        : words[1][0] == 'a' ? SYS_rt_sigaction : words[1][0] == 't' ? SYS_rt_sigtimedwait
        : words[1][0] == 'f' ? SYS_clone : SYS_wait4;
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog filter = {4, steps};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &filter)) return 77;
    execvp(words[2], words + 2);
    return 78;
}
"""


@pytest.fixture(scope="module")
def deny(tmp_path_factory):
    """The path of that program."""
    path = tmp_path_factory.mktemp("deny") / "deny"
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    subprocess.run([compiler, "-xc", "-", "-o", path], input=DENY, text=True, check=True)
    if subprocess.run([path, "k", "true"], check=False).returncode == 77:
        pytest.skip("no filters of system calls here")
    return path


@pytest.mark.parametrize("call", ["kill", "mask", "action", "timedwait", "wait", "fork"])
@pytest.mark.parametrize("command", ["run", "trace"])
def test_sandbox_that_forbids_signals_or_processes(child, deny, command, call):
    """The program runs as it would without us, and ends as it does."""
    launcher = (deny, call, sys.executable, "-m", "cudaguard", command, "-c")
    done = child.command(*launcher, "print(1); raise SystemExit(5)", check=False)
    assert (done.returncode, done.stdout) == (5, "1\n")
    assert ("the program runs unsupervised" in done.stderr) is (call != "kill")
    done = child.command(*launcher, "import ctypes; ctypes.string_at(0)", check=False)
    assert done.returncode in (-signal.SIGSEGV, 128 + signal.SIGSEGV)
    assert "Traceback" not in done.stderr


# --- before the program has begun -----------------------------------------------------------------

BEFORE = """
import os, signal, sys
def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)
"""
BEGINNINGS = {
    "the command": "from cudaguard.tools import main\nmain.common.prepare_streams = interrupt\n"
    "main.main(['run', '-c', ''])",
    "the start-up line": "import _cudaguard_boot\nfrom cudaguard.hooks import own_imports\n"
    "own_imports.load = interrupt\n_cudaguard_boot.start()",
    "the guard of the program": "import cudaguard.tools.run.launch, runpy\n"
    "from cudaguard.hooks import own_imports\nown_imports.load = interrupt\n"
    "runpy.run_path(cudaguard.tools.run.launch.SITE_FOLDER + '/sitecustomize.py')",
}


@pytest.mark.parametrize("where", BEGINNINGS)
def test_interrupt_before_the_program_has_begun_ends_it_as_python_ends(child, where):
    env = {"CUDAGUARD": "fix", "CUDAGUARD_RUN_PREFIX": ""}
    done = child.python(BEFORE + BEGINNINGS[where], env=env, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
