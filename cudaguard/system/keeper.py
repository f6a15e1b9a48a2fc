"""A process that keeps together what a command starts, so that nothing of it stays behind.

What a program leaves when it ends, and what detaches itself (``setsid``, a second fork), is handed
to the nearest "subreaper" above. That is this process: whatever is below it belongs to the command,
and nothing else does. It ends all of it when its standard input ends, so also when the process that
has called `start` is killed.

Source: ``prctl(2)``, PR_SET_CHILD_SUBREAPER and PR_SET_PDEATHSIG.
"""

from __future__ import annotations

import os
import signal
import sys
from time import monotonic, sleep

from cudaguard.system.processes import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    descendants,
    is_below,
    load_prctl,
    state,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from subprocess import Popen
    from typing import NoReturn

PATIENCE = 5.0  # seconds for what has been killed to be gone; a dead disk may hold it for ever
NOT_STARTED = b"!"  # begins a line that gives the number of an error, in place of a status
_PAUSE = 0.005
_HEEDED = (signal.SIGCHLD, signal.SIGTERM)
_IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFZ", "SIGXFSZ")  # as in subprocess: a program is to have them
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Without `site`: no start-up file of the environment runs, and ours comes last in the path.
_PROGRAM = "import sys; sys.path.append({!r}); from cudaguard.system.keeper import main; main()"


def start(command: Sequence[str], environ: Mapping[str, str], report: int) -> Popen[bytes]:
    """Start a keeper, and the command below it, without input and with its output in pipes.

    Args:
        command: The command and its arguments.
        environ: The environment of the command.
        report: A descriptor for the status of the command: a line with a number, as of
            ``os.waitpid``.

    Raises:
        OSError: There can be no further process.
    """
    import subprocess

    keeper = (sys.executable, "-I", "-S", "-c", _PROGRAM.format(_ROOT), str(report), *command)
    return subprocess.Popen(
        keeper,
        env=dict(environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(report,),
        start_new_session=True,  # the signals of a terminal are not for it
    )


def main() -> NoReturn:
    """Run the command of ``sys.argv``, tell how it ended, and end all that is below at the end."""
    report, command = int(sys.argv[1]), sys.argv[2:]
    os.set_inheritable(report, False)
    prctl = load_prctl()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in _HEEDED:
        signal.signal(number, lambda *_: None)
    # Whoever has started us may have held them back; the command is to find that as it was.
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEEDED)
    try:
        pid = os.fork()
    except OSError as error:  # a limit on processes
        os.write(report, b"%b%d\n" % (NOT_STARTED, error.errno or 0))
        os._exit(1)
    if not pid:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        _become(command, report, mask)
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # a pipe ends when the command lets go of it
        os.dup2(nothing, stream)
    _watch(pid, woken, report)
    _end_all(pid)
    os._exit(0)


def _become(command: list[str], report: int, mask: set[int]) -> NoReturn:
    """Turn this fork into the command, with those signals held back."""
    try:
        for number in _HEEDED:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for name in _IGNORED_BY_PYTHON:
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), signal.SIG_DFL)
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execvp(command[0], command)
    except OSError as error:
        os.write(report, b"%b%d\n" % (NOT_STARTED, error.errno or 0))
    finally:
        os._exit(1)


def _watch(pid: int, woken: int, report: int) -> None:
    """Wait until this is to end, and tell meanwhile how the command ends."""
    import select

    signals = b""
    while signal.SIGTERM not in signals:
        try:
            for ended, status in _buried():
                if ended == pid:
                    os.write(report, b"%d\n" % status)
        except (BrokenPipeError, ChildProcessError):  # whoever wants to know has been killed
            pass
        ready, _, _ = select.select([0, woken], [], [])
        if 0 in ready:
            return
        signals = os.read(woken, 512)


def _buried() -> Iterator[tuple[int, int]]:
    """Take leave of what has ended below: (process, status) of each.

    Raises:
        ChildProcessError: Nothing is left below. (Then nothing was adopted either.)
    """
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        yield pid, status


def _end_all(pid: int) -> None:
    """Kill all that is below this process, and what is below that, until nothing is left."""
    deadline = monotonic() + PATIENCE
    own = os.getpid()
    try:
        if is_below(pid, own) or not state(pid):  # it has ended, and another may have got its id
            os.killpg(pid, signal.SIGKILL)  # at once, and also where /proc cannot be read
    except OSError:  # nobody is left in it
        pass
    while monotonic() < deadline:
        for process in descendants(own):
            if is_below(process, own):  # not another that has got its id
                try:
                    os.kill(process, signal.SIGKILL)
                except OSError:  # it has ended, or changed its user
                    continue
        try:
            for _ in _buried():
                continue
        except ChildProcessError:
            return
        sleep(_PAUSE)
