"""The parent of a supervised program: starts it, hands signals on, waits, ends as it ended.

Program and parent are in one process group, as a program and its shell's job are: the terminal
stops, continues and interrupts both at once, and a signal is handed on only where the program has
not got it already. No thread, no handler: signals are blocked and taken one
by one (``sigtimedwait``), which also tells who sent them.
"""

from __future__ import annotations

import os
import signal
import sys
from time import monotonic, sleep

from cudaguard.system.processes import (
    PR_SET_CHILD_SUBREAPER,
    descendants,
    end_with,
    group_of,
    handles,
    is_below,
    load_prctl,
    openmp_wait,
    start_of,
    state,
)
from cudaguard.tools.run.ending import ProgramEnd
from cudaguard.tools.run.witness import Relay, Witness

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import NoReturn

    from cudaguard.system.processes import ForkedWait, Prctl

IS_SUPPORTED = sys.platform.startswith("linux") and hasattr(signal, "sigtimedwait")
CANNOT_START = 127  # exit status, as of `env` and `timeout`
# Of the last real-time signals hardly anyone knows.
DUMP_SIGNAL: int = getattr(signal, "SIGRTMAX", 0) and int(signal.SIGRTMAX) - 2
QUIT: int = int(getattr(signal, "SIGQUIT", 0))
GRACE = 5.0  # seconds from SIGTERM to SIGKILL
_LONGEST = 1e6  # seconds of one wait; the system takes no time beyond its calendar
_TWICE = 2.0  # seconds within which a second Ctrl-Backslash ends the program
_DUMPING = 0.5  # seconds that a process gets to write down where it is
_HIGHEST = 1 << 16  # descriptor that is closed where nobody tells which are open
# Faults of the parent itself; blocked, they would kill it without a word.
_OWN_FAULTS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS")
# They name the process that they are meant for by its id: systemd's sockets and watchdog.
_NAMED_BY_ID = ("LISTEN_PID", "WATCHDOG_PID")


class NoProcessError(Exception):
    """The program cannot have a process of its own."""


class Supervisor:
    """Runs one program as a child of this process, whose signals are blocked from now on.

    Args:
        command: The interpreter and its arguments.
        timeout: Seconds after which the program and what it has started are ended; 0 for never.
        dump_signal: Has Python processes below us write down where they are; 0 for none.
        kept: A descriptor that stays open in this process; -1 for none.
        on_quit: Shows what the processes have written down upon SIGQUIT (Ctrl-Backslash), and
            returns True if there was anything; None: the signal is like any other.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        timeout: float = 0,
        dump_signal: int = 0,
        kept: int = -1,
        on_quit: Callable[[], bool] | None = None,
    ) -> None:
        self._command = list(command)
        self._timeout = timeout
        self._dump_signal = dump_signal
        self._kept = kept
        own = {getattr(signal, name) for name in _OWN_FAULTS}
        self._signals = set(signal.valid_signals()) - own - {signal.SIGKILL, signal.SIGSTOP}
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)
        # Where whoever started us ignores it, children vanish without a status.
        self._on_child = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._prctl = load_prctl()
        self._relay = Relay(None)
        self._on_quit = on_quit
        self._show_at = 0.0  # when what SIGQUIT asked for is written down; 0.0: it has not come
        self._shown_at = 0.0
        self._sent: set[int] = set()
        self._pid = 0
        self._status: int | None = None
        self._waits: tuple[ForkedWait, ...] = ()

    def run(self, environment: Mapping[str, str], *, is_silent: bool = False) -> ProgramEnd:
        """Start the program and return how it has ended. Signals stay blocked: see `end_as`.

        Args:
            environment: The environment of the program.
            is_silent: True to drop its standard error, as the rest the second time.

        Raises:
            NoProcessError: The machine or a limit allows none.
        """
        self._sent, self._status = set(), None
        start, parent = monotonic(), os.getpid()
        if self._timeout:  # what detaches itself is to be found as well
            self._prctl(PR_SET_CHILD_SUBREAPER, 1)
        try:
            self._pid = os.fork()
        except OSError as error:
            raise NoProcessError(f"no further process can be started: {error.strerror}") from error
        if not self._pid:
            self._become(dict(environment), parent, is_silent=is_silent)
        _let_go_of_files(self._kept)
        self._relay = Relay(_witness(self._signals, self._prctl))
        is_late = not self._wait(start + self._timeout if self._timeout else None)
        seconds = monotonic() - start
        if is_late:
            self._end_all()
        for number in self._relay.left():  # it did not get there: it is for what we do next
            os.kill(os.getpid(), number)
        if self._relay.witness is not None:
            self._relay.witness.dismiss()
        status = CANNOT_START if self._status is None else self._status
        sent = frozenset(self._sent)
        return ProgramEnd(self._pid, status, is_late, sent, seconds, self._waits)

    def become(self, environment: Mapping[str, str]) -> NoReturn:
        """Turn this process itself into the program, where there can be no other."""
        signal.signal(signal.SIGCHLD, self._on_child)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        os.execve(self._command[0], self._command, dict(environment))

    def _become(self, environment: dict[str, str], parent: int, *, is_silent: bool) -> NoReturn:
        """Turn this fork into the program."""
        try:
            signal.signal(signal.SIGCHLD, self._on_child)
            # kill -9 of the command that was started kills the program, as without us.
            end_with(parent, self._prctl, CANNOT_START)
            for name in _NAMED_BY_ID:
                if environment.get(name) == str(parent):
                    environment[name] = str(os.getpid())
            if is_silent:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            os.execve(self._command[0], self._command, environment)
        except OSError as error:
            os.write(2, f"cudaguard run: {self._command[0]}: {error.strerror}\n".encode())
        finally:
            os._exit(CANNOT_START)

    def _wait(self, deadline: float | None) -> bool:
        """Hand on signals until the program has ended; False if that is not before a time."""
        while self._status is None:
            left = _LONGEST if deadline is None else max(deadline - monotonic(), 0.0)
            show = self._show_at - monotonic() if self._show_at else _LONGEST
            limit = min(left, self._relay.patience(_LONGEST), show)
            info = signal.sigtimedwait(self._signals, min(max(limit, 0.0), _LONGEST))
            if info is None:
                if deadline is not None and monotonic() >= deadline:
                    return False
            elif info.si_signo == signal.SIGCHLD:
                self._look_at_children()
            elif info.si_signo == signal.SIGQUIT and self._on_quit is not None:
                self._quit(is_from_terminal=info.si_code > 0)
            elif not self._has_it_already(info):
                self._relay.receive(info.si_signo)
            for number in self._relay.due():
                self._send(number)
            if self._show_at and monotonic() >= self._show_at and self._on_quit is not None:
                self._show_at = 0.0
                self._shown_at = monotonic() if self._on_quit() else 0.0
        return True

    def _quit(self, *, is_from_terminal: bool) -> None:
        """Have shown what the program is doing; once more, and it is ended."""
        if self._shown_at and monotonic() - self._shown_at < _TWICE:
            self._sent |= {signal.SIGTERM, signal.SIGKILL}
            self._end_all()
            return
        group = os.getpgid(0) if is_from_terminal else 0
        for pid in descendants(os.getpid()):  # those of our group have got the signal themselves
            if group_of(pid) != group:
                self._dump(pid)
        self._show_at = monotonic() + _DUMPING

    def _look_at_children(self) -> None:
        while True:
            try:
                # Any child: as the first process of a container we inherit orphans.
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if not pid:
                return
            witness = self._relay.witness
            if witness is not None and pid == witness.pid:
                if not os.WIFSTOPPED(status):  # its id may be another's now
                    self._relay.witness = None
                continue
            if pid != self._pid:
                continue
            if os.WIFSTOPPED(status):
                self._stop_too(os.WSTOPSIG(status))
            elif os.WIFSIGNALED(status):
                self._status = -os.WTERMSIG(status)
            else:
                self._status = os.WEXITSTATUS(status)

    def _has_it_already(self, info: signal.struct_siginfo) -> bool:
        """Return True if the program got this signal without us, or sent it."""
        if info.si_code > 0:  # by the kernel: the terminal sends to the whole process group
            return True
        return bool(info.si_pid and is_below(info.si_pid, self._pid))

    def _send(self, number: int) -> None:
        self._sent.add(number)
        try:
            os.kill(self._pid, number)
        except OSError:  # it has changed its user
            return

    def _stop_too(self, number: int) -> None:
        """Stop as the program has been stopped, so that the shell sees it; then go on with it."""
        if number == signal.SIGSTOP and not _has_terminal():
            return  # nobody's job: whoever continues the program would not think of us
        os.kill(os.getpid(), number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})  # we stop here
        signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)
        deadline = monotonic() + 0.1  # the shell continues the whole group, one by one
        while monotonic() < deadline:
            if state(self._pid) not in "Tt":
                return
            sleep(0.01)
        self._send(signal.SIGCONT)

    # --- the time is up -------------------------------------------------------------

    def _end_all(self) -> None:
        """Have everything write down where it is, then end it: politely first."""
        witness = self._relay.witness
        everything = dict.fromkeys((self._pid, *descendants(os.getpid())))
        everything.pop(witness.pid if witness is not None else 0, None)
        tree = {pid: start for pid in everything for start in [start_of(pid)] if start}
        self._waits = tuple(filter(None, map(openmp_wait, tree)))  # the question wakes them
        asked = [self._dump(pid) for pid in tree] if self._dump_signal else []
        if any(asked):
            self._wait(monotonic() + _DUMPING)
        for number in (signal.SIGTERM, signal.SIGCONT):  # what is stopped takes no signal
            for pid in tree:
                _kill(pid, number)
        deadline = monotonic() + GRACE
        while monotonic() < deadline and any(start_of(pid) == tree[pid] for pid in tree):
            self._wait(min(deadline, monotonic() + 0.05))
            if self._status is not None:
                sleep(0.02)
        for pid, start in tree.items():
            if start_of(pid) == start:
                _kill(pid, signal.SIGKILL)
        self._wait(None)

    def _dump(self, pid: int) -> bool:
        """Ask a process for its traceback; False if it would die of the question."""
        if not handles(pid, self._dump_signal):
            return False
        _kill(pid, self._dump_signal)
        return True


def _let_go_of_files(kept: int) -> None:
    """Close what was handed down to the program: a pipe ends when *it* lets go of it.

    Standard error stays, for the report.
    """
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
    except OSError:  # a bare chroot, or no descriptor is left
        os.closerange(0, 2)
    try:
        highest = max((int(name) for name in os.listdir("/proc/self/fd")), default=2)
    except OSError:  # no /proc is mounted
        highest = _HIGHEST
    os.closerange(3, max(kept, 3))
    os.closerange(max(kept, 2) + 1, highest + 1)


def _witness(signals: set[signal.Signals], prctl: Prctl) -> Witness | None:
    try:
        return Witness(signals, prctl)
    except OSError:  # no further process is allowed
        return None


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR))
    except OSError:
        return False
    return True


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:  # it has ended, or changed its user
        return
