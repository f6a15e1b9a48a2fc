"""The parent of a supervised program: starts it, hands signals on, waits, ends as it ended.

Program and parent are in one process group, as a program and its shell's job are: the terminal
stops, continues and interrupts both at once. A signal that a process has sent to the parent is
handed on; one that was sent to the whole group reaches the program twice, as the kernel does not
tell the two apart. No thread, no handler: signals are blocked and taken one by one
(``sigtimedwait``), which also tells who sent them.
"""

from __future__ import annotations

import os
import select
import signal
import struct
import sys
from contextlib import suppress
from math import inf
from time import monotonic, sleep, time
from typing import NamedTuple

from cudaguard.core.journal import Journal
from cudaguard.core.record import DUMP_SIGNAL, DUMP_TIME_VARIABLE, FAULTS, FOLDER_VARIABLE, JOURNAL
from cudaguard.files import names_in
from cudaguard.model import TYPE_CHECKING
from cudaguard.system import processes
from cudaguard.tools.common import TIMEOUT, note
from cudaguard.tools.run.record import pid_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import FrameType
    from typing import NoReturn

    from cudaguard.tools.run.record import RunRecord

IS_WINDOWS = os.name == "nt"
IS_SUPPORTED = IS_WINDOWS or (sys.platform == "linux" and hasattr(signal, "sigtimedwait"))
GRACE = 5.0  # seconds from SIGTERM to SIGKILL
_LONGEST = 1.0  # seconds of one wait
_DUMPING = 0.5  # seconds that a process gets to write down where it is
# Of <linux/pidfd.h>: what is wanted; at the end, the status as `waitpid` has it.
_PIDFD_OPEN, _GET_INFO, _EXIT, _INFO = 434, 0xC040FF0B, 8, struct.Struct("Q52xi")
_MOST_WATCHED = 400  # processes: each takes two descriptors
_ASKING = (signal.SIGINT, signal.SIGTERM)
_ENDING = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")


class ProgramEnd(NamedTuple):
    """End of the program."""

    pid: int  # its process id
    status: int  # its exit status; the negative number of the signal that has killed it
    is_late: bool = False  # true if it was ended because its time was up
    sent: frozenset[int] = frozenset()  # signals that were handed on to it
    seconds: float = 0.0  # how long it ran, or was let run


def run_recorded(
    tool: str,
    command: Sequence[str],
    environment: dict[str, str],
    record: RunRecord,
    tell: Callable[[ProgramEnd], None],
    *,
    timeout: float,
    watch: Callable[[bool, int], None] = lambda *_: None,
) -> int:
    """Run a program, tell of it what its processes have recorded, and end as it did.

    The environment is completed; the record is removed at the end, once `tell` has read it; what
    that raises changes nothing. After `timeout` seconds, 0 for never, the program and what it has
    started are ended. `watch` is called about once a second while it runs, and with True before it
    is asked to end; and with its process id.
    """
    environment[FOLDER_VARIABLE] = record.folder
    flush()
    try:
        if IS_WINDOWS:
            ended = _run_on_windows(command, environment, timeout, watch)
        else:
            supervisor = Supervisor(command, timeout, record, watch)
            ended = supervisor.run(environment)
    except NoProcessError as error:
        record.remove()
        environment.pop(FOLDER_VARIABLE, None)
        note(tool, f"{error}; the program runs unsupervised")
        flush()
        supervisor.become(environment)
    except BaseException:
        record.remove()
        raise
    ending = [getattr(signal, name) for name in _ENDING if hasattr(signal, name)]
    for number in ending:
        signal.signal(number, _interrupt)
    try:
        if not IS_WINDOWS:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ending)
        tell(ended)
    except _InterruptedError as error:
        if str(error) != "SIGINT" or ended.status != -signal.SIGINT:  # Ctrl-C has ended both
            note(tool, f"no report: {error} came while it was written")
    except Exception as error:  # whatever it is, the program's end is what counts
        note(tool, f"no report: {type(error).__name__}: {error}")
    finally:
        if not IS_WINDOWS:
            signal.pthread_sigmask(signal.SIG_BLOCK, ending)
        record.remove()
    return _end_as(ended)


def _run_on_windows(
    command: Sequence[str],
    environment: dict[str, str],
    timeout: float,
    watch: Callable[[bool, int], None],
) -> ProgramEnd:
    """Run a program and return how it has ended.

    Both share the console, which tells each of Ctrl-C and Ctrl-Break: they are for the program,
    whose end is reported. All that it starts belongs to one job, and ends with this process.
    """
    from cudaguard.system.windows import Job, end_of

    for name in ("SIGINT", "SIGBREAK"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    started, folder, job = monotonic(), environment[FOLDER_VARIABLE], Job()
    environment.pop(DUMP_TIME_VARIABLE, None)  # of a run around this one
    if timeout:
        environment[DUMP_TIME_VARIABLE] = str(time() + timeout)
    journal = Journal(lambda *_: None)
    if folder:
        journal.record_to(os.path.join(folder, JOURNAL))
    try:
        program = job.start(command, environment)
    except OSError as error:
        note("run", f"{command[0]}: {error.strerror}")
        return ProgramEnd(0, processes.CANNOT_START)
    while program.poll() is None:
        left = started + (timeout + _DUMPING if timeout else inf) - monotonic()
        if left <= 0:
            job.end()
            return ProgramEnd(program.pid, program.wait(), True, seconds=timeout)
        pid, status = job.wait(min(left, _LONGEST))
        if status and pid != program.pid:
            journal.note("child", str(pid), details={"signal": max(-status, 0)})
        with suppress(Exception):  # whatever it is, the program's end is what counts
            watch(False, program.pid)
    job.let_go()
    return ProgramEnd(program.pid, end_of(program.returncode), seconds=monotonic() - started)


class NoProcessError(Exception):
    """The program cannot have a process of its own."""


class Supervisor:
    """Runs one program as a child of this process, whose signals are blocked from now on.

    The arguments are those of `run_recorded`.
    """

    def __init__(
        self,
        command: Sequence[str],
        timeout: float,
        record: RunRecord,
        watch: Callable[[bool, int], None],
    ) -> None:
        self._command, self._watch = list(command), watch
        self._timeout = timeout
        self._record = record
        # Faults of the parent itself; blocked, they would kill it without a word.
        own = {getattr(signal, name) for name in processes.FAULT_SIGNALS} - {signal.SIGABRT}
        self._signals = set(signal.valid_signals()) - own - {signal.SIGKILL, signal.SIGSTOP}
        self._mask: set[int] = set()  # of signals that were blocked before
        self._on_child = signal.getsignal(signal.SIGCHLD)
        self._prctl = processes.load_prctl()
        self._sent: set[int] = set()
        self._pid = 0
        self._pause: Callable[[float], float] = float  # returns how much is left
        self._status: int | None = None

    def run(self, environment: Mapping[str, str]) -> ProgramEnd:
        """Start the program and return how it has ended. Signals stay blocked."""
        start, parent = monotonic(), os.getpid()
        if self._timeout:  # what detaches itself is to be found as well
            self._prctl(processes.PR_SET_CHILD_SUBREAPER, 1)
        try:
            self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)
            # Where whoever started us ignores it, children vanish without a status.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.sigtimedwait([], 0)  # what a sandbox forbids is tried while all can be undone
            with suppress(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)
            self._pid = os.fork()
        except OSError as error:
            raise NoProcessError(f"no process can be supervised: {error.strerror}") from error
        if not self._pid:
            self._start(environment, parent)
        processes.close_files(2)  # a pipe ends when the program lets go of it
        with suppress(Exception):  # no such call here, or a sandbox: then a parent tells, or nobody
            self._pause = Watch(self._record, self._signals).wait
        is_late = not self._wait(start + (self._timeout or inf))
        seconds = self._timeout if is_late else monotonic() - start
        if is_late:
            self._pause = float  # what we end ourselves is nobody's death to be told
            self._end_all()
        status = processes.CANNOT_START if self._status is None else self._status
        return ProgramEnd(self._pid, status, is_late, frozenset(self._sent), seconds)

    def become(self, environment: Mapping[str, str]) -> NoReturn:
        """Turn this process itself into the program."""
        with suppress(OSError, TypeError):  # as much as a sandbox allows
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            signal.signal(signal.SIGCHLD, self._on_child)
        os.execve(self._command[0], self._command, dict(environment))

    def _start(self, environment: Mapping[str, str], parent: int) -> NoReturn:
        """Turn this fork into the program."""
        try:
            # kill -9 of the command that was started kills the program, as without us.
            processes.end_with(parent, self._prctl)
            self.become(environment)
        except OSError as error:
            os.write(2, f"cudaguard run: {self._command[0]}: {error.strerror}\n".encode())
        finally:
            os._exit(processes.CANNOT_START)

    def _wait(self, deadline: float) -> bool:
        """Hand on signals until the program has ended; False if that is not before a time."""
        while self._status is None:
            left = min(deadline - monotonic(), _LONGEST)
            if left <= 0:
                return False
            try:
                left = self._pause(left)
            except Exception:  # whatever the program does to its record
                self._pause = float
            info = signal.sigtimedwait(self._signals, left)
            is_end = info is not None and info.si_signo in _ASKING
            if info is None or is_end:
                with suppress(Exception):  # whatever it is, the program's end is what counts
                    self._watch(is_end, self._pid)
            if info is None:
                continue
            if info.si_signo == signal.SIGCHLD:
                self._look_at_children()
                continue
            # The program has it where the kernel sends (the terminal does so to the whole process
            # group), or where it is the sender.
            is_own = info.si_pid and processes.is_below(info.si_pid, self._pid)
            if info.si_code <= 0 and not is_own:
                self._hand_on(info.si_signo)
        return True

    def _look_at_children(self) -> None:
        with suppress(ChildProcessError):
            while True:
                # Any child: as the first process of a container we inherit orphans.
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
                if not pid:
                    return
                if pid != self._pid:
                    continue
                if os.WIFSTOPPED(status):
                    self._stop_too(os.WSTOPSIG(status))
                else:
                    self._status = os.waitstatus_to_exitcode(status)

    def _hand_on(self, number: int) -> None:
        self._look_at_children()
        if self._status is None:
            self._sent.add(number)
            _kill(self._pid, number)
        else:  # it has ended: the signal is for what we do next
            os.kill(os.getpid(), number)

    def _stop_too(self, number: int) -> None:
        """Stop as the program has been stopped, so that the shell sees it; then go on with it."""
        if number == signal.SIGSTOP:
            try:
                os.close(os.open("/dev/tty", os.O_RDWR))
            except OSError:  # nobody's job: whoever continues the program would not think of us
                return
        os.kill(os.getpid(), number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})  # we stop here
        signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)
        deadline = monotonic() + 0.1  # the shell continues the whole group, one by one
        while monotonic() < deadline:
            if processes.state(self._pid) not in "Tt":
                return
            sleep(0.01)
        self._hand_on(signal.SIGCONT)

    def _end_all(self) -> None:
        """Have everything write down where it is, then end it: politely first."""
        # Others would die of it.
        asked = [pid for pid in _alive() if processes.handles(pid, DUMP_SIGNAL)]
        for pid in asked:
            _kill(pid, DUMP_SIGNAL)
        if asked:
            self._wait(monotonic() + _DUMPING)
        tree = _alive()
        for number in (signal.SIGTERM, signal.SIGCONT):  # what is stopped takes no signal
            for pid in tree:
                _kill(pid, number)
        deadline = monotonic() + GRACE
        while _alive() and monotonic() < deadline:
            self._wait(monotonic() + 0.05)
            if self._status is not None:
                sleep(0.02)
        for pid in _alive():
            _kill(pid, signal.SIGKILL)
        self._wait(inf)


# --- who is killed, whoever has started it ----------------------------------------


class Watch:
    """Notes in the journal who was killed: some parents (mpirun, Ray's raylet) tell nobody.

    An OSError, ImportError or the like where the system does not tell how others have ended: it
    takes Linux 6.15 or later.
    """

    def __init__(self, record: RunRecord, signals: Iterable[int]) -> None:
        import ctypes
        from fcntl import DN_CREATE, DN_MULTISHOT, F_NOTIFY, fcntl

        self._libc, self._folder, self._poll = ctypes.CDLL(None), record.folder, select.poll()
        self._status(self._open(os.getpid()))  # can it be asked for?
        self._journal = Journal(lambda *_: None)
        self._journal.record_to(os.path.join(record.folder, JOURNAL))
        self._known: dict[int, tuple[int, int]] = {}  # descriptor -> process, its parent's
        mask = sum(1 << number - 1 for number in signals).to_bytes(8, sys.byteorder)
        self._poll.register(self._libc.signalfd(-1, mask + bytes(120), os.O_CLOEXEC))
        place = os.open(self._folder, os.O_RDONLY)
        fcntl(place, F_NOTIFY, DN_CREATE | DN_MULTISHOT)  # SIGIO comes when a process begins

    def wait(self, seconds: float) -> float:
        """Wait as long, but no longer than until a signal comes; return 0."""
        end = monotonic() + seconds
        known = {pid for pid, _ in self._known.values()}
        for pid in {*map(pid_of, names_in(self._folder))} - {0, *known}:
            parent = processes.parent_of(pid)
            # Else it is of a container, and its number another one's here.
            if processes.is_below(parent, os.getpid()) and len(known) < _MOST_WATCHED:
                with suppress(OSError):
                    file = self._open(pid)
                    self._known[file] = pid, self._open(parent)
                    self._poll.register(file, 0)  # POLLHUP: its parent knows as well
        while True:
            ready = {file for file, _ in self._poll.poll(max(0, end - monotonic()) * 1000)}
            for file in ready & self._known.keys():
                self._poll.unregister(file)
                pid, parent = self._known.pop(file)
                ready.remove(file)
                with suppress(OSError):
                    of_parent = self._status(parent)  # before it can know that we have looked
                    self._note_end(pid, self._status(file), of_parent)
            if ready or monotonic() >= end:
                return 0.0

    def _note_end(self, pid: int, status: int | None, of_parent: int | None) -> None:
        if status == 0:
            os.unlink(os.path.join(self._folder, f"{FAULTS}{pid}"))
        # With a parent that ends well, or is killed, the kernel may end it.
        elif status and os.WIFSIGNALED(status) and (of_parent is None or of_parent & 0xFF00):
            self._journal.note("child", str(pid), details={"signal": os.WTERMSIG(status)})

    def _open(self, pid: int) -> int:
        file = int(self._libc.syscall(_PIDFD_OPEN, pid, 0))  # Python may lack it
        if file < 0:
            raise ProcessLookupError
        return file

    def _status(self, file: int) -> int | None:
        """Return how a process has ended, None if it has not; close the descriptor."""
        from fcntl import ioctl

        try:
            mask, status = _INFO.unpack(ioctl(file, _GET_INFO, _INFO.pack(_EXIT, 0)))
        finally:
            os.close(file)
        return int(status) if mask & _EXIT else None


def _alive() -> list[int]:
    """Return what is below this process, which inherits what has detached itself, and runs."""
    below = processes.descendants(os.getpid())
    return [pid for pid in below if processes.state(pid) not in ("", "Z", "X")]


def _kill(pid: int, number: int) -> None:
    with suppress(OSError):  # it has ended, or changed its user
        os.kill(pid, number)


# --- the end ------------------------------------------------------------------------


class _InterruptedError(BaseException):
    """A signal wants the command to end at once; what it says is the name of the signal."""


def _interrupt(number: int, _: FrameType | None) -> NoReturn:
    raise _InterruptedError(signal.Signals(number).name)


def _end_as(ended: ProgramEnd) -> int:
    """End this process by the signal that the program died of; else return the exit status."""
    if ended.is_late:
        return TIMEOUT
    if IS_WINDOWS:  # which has 32 bits of it, with a sign
        return (abs(ended.status) ^ 1 << 31) - (1 << 31)
    if ended.status >= 0:
        return ended.status
    import resource

    number = -ended.status
    flush()
    # The core file is the program's, and there may be one already: none of this process.
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    # 1 and not 0: where core files are piped to a program, 0 forbids nothing (core(5)).
    resource.setrlimit(resource.RLIMIT_CORE, (0 if most == 0 else 1, most))
    with suppress(OSError):  # a sandbox may forbid it
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    return 128 + number  # the first process of a container does not die of its own signals


def flush() -> None:
    """Write out what this process has printed; one that was started without streams has none."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads it any more
            if stream is not None:
                stream.flush()
