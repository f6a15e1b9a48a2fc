"""Runs commands and functions in children, with limits of time and output; nothing of them stays.

Between this process and a child stands a reaper. What the child leaves when it ends, and what
detaches itself (``setsid``, a second fork), is handed to the nearest "subreaper" above. That is
the reaper: whatever is below it belongs to the child, and nothing else does. It kills all of it
when the child has ended, when its time is up, and when this process ends, even by SIGKILL.

Source: ``prctl(2)``, PR_SET_CHILD_SUBREAPER and PR_SET_PDEATHSIG.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from io import FileIO
from time import monotonic, sleep

from cudaguard.model import TYPE_CHECKING, NamedTuple, Record
from cudaguard.system import STANDARD, origin_of_file, processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from multiprocessing.connection import Connection
    from typing import Any, NoReturn

    from cudaguard.system.processes import Prctl

KEPT = 1 << 16  # bytes of each stream, the last ones
CHUNK = 1 << 16
PATIENCE = 2.0  # seconds for what has been killed to be gone; a dead disk may hold it for ever
AFTERWARDS = 5.0  # seconds for each of the other functions, once one has waited too long
_PAUSE = 0.002

_reapers: set[int] = set()  # of the children that run now


# --- the child and its reaper ---------------------------------------------------------------------


@contextmanager
def _child(work: Callable[[], object]) -> Iterator[int]:
    """Run a function in a child. At the end of the block, kill it and all that it has started.

    What is yielded is a descriptor that tells how the child has ended, as ``os.waitpid`` does, when
    nothing of it is left. Raises OSError if there can be no further process.
    """
    import warnings

    # An error made of this warning would be raised in the parent alone, and the child go on.
    message = "This process .* is multi-threaded"
    warnings.filterwarnings("ignore", message, category=DeprecationWarning)
    report, end = os.pipe()
    prctl, own = processes.load_prctl(), os.getpid()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        if not (reaper := os.fork()):
            _reap(work, end, mask, own, prctl)
        _reapers.add(reaper)
    except OSError:
        os.close(report)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(end)
    try:
        yield report
    finally:
        os.close(report)
        _dismiss(reaper)


def _dismiss(reaper: int) -> None:
    """Have a reaper kill all that is below it, and wait until it has."""
    _reapers.discard(reaper)
    with suppress(OSError):  # no status where SIGCHLD is ignored
        os.kill(reaper, signal.SIGTERM)
        deadline = monotonic() + 2 * PATIENCE
        while not os.waitpid(reaper, os.WNOHANG)[0]:
            if monotonic() > deadline:
                os.kill(reaper, signal.SIGKILL)
                return
            sleep(_PAUSE)


def end_children() -> None:
    """End the children that other threads of this process wait for."""
    for reaper in tuple(_reapers):
        with suppress(OSError):
            os.kill(reaper, signal.SIGTERM)


def _reap(
    work: Callable[[], object], report: int, mask: set[int], parent: int, prctl: Prctl
) -> NoReturn:
    """Start the child, wait for its end or ours, kill all that is below, and tell how it ended.

    All signals are blocked here, and taken one by one.
    """
    try:
        processes.end_with(parent, prctl, signal.SIGTERM)
        prctl(processes.PR_SET_CHILD_SUBREAPER, 1)
        os.setsid()  # the signals of a terminal are not for it
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else there is no status
        own = os.getpid()
        if not (pid := os.fork()):
            processes.end_with(own, prctl)
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            work()
            os._exit(0)
        processes.close_files(report)  # a pipe ends when the child lets go of it
        ended: dict[int, int] = {}
        waited_for = (signal.SIGCHLD, signal.SIGTERM)
        while pid not in ended and signal.sigwait(waited_for) != signal.SIGTERM:
            _note_ended(ended)
        with suppress(OSError):  # nobody is left in it
            os.killpg(pid, signal.SIGKILL)  # at once, and also where /proc cannot be read
        deadline = monotonic() + PATIENCE
        while _note_ended(ended) and monotonic() < deadline:
            for process in processes.descendants(own):
                with suppress(OSError):  # it has ended, or changed its user
                    os.kill(process, signal.SIGKILL)
            sleep(_PAUSE)
        os.write(report, b"%d" % ended.get(pid, signal.SIGKILL))
    finally:
        os._exit(0)  # whatever comes up to here: the other process goes on


def _note_ended(ended: dict[int, int]) -> bool:
    """Note how processes below have ended; return True if there are others."""
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return True
            ended.setdefault(pid, status)
    except ChildProcessError:
        return False


# --- commands -------------------------------------------------------------------------------------


class Failure(NamedTuple):
    """Failure of a child."""

    kind: str  # ``signal``, ``hang``, ``error`` (an exception) or ``exit``; empty if all is well
    text: str  # the signal, the last line of the error, or the exit status


class Ended(Record):
    """End of a command."""

    status: int | None  # negative, the signal that ended it; None, it ran into the limit
    output: str  # the end of what it wrote to standard output
    errors: str  # the same of standard error
    seconds: float  # how long it ran

    def failure(self) -> Failure:
        """Return how it failed, if it did."""
        if self.status is None:
            return Failure("hang", "")
        if self.status < 0:
            return Failure("signal", processes.signal_name(-self.status))
        if error := error_of(self.errors) if self.status else "":
            return Failure("error", error)
        return Failure("exit", str(self.status)) if self.status else Failure("", "")


def run_command(command: Sequence[str], environ: Mapping[str, str], limit: float) -> Ended:
    """Run a command to its end, or to the limit of seconds, and kill whatever it leaves behind.

    It has no input and leaves no core file. One that cannot be started has status 127; an OSError
    says that there can be no further process.
    """
    started = monotonic()
    if os.name == "nt":
        from cudaguard.system.windows import run_to_its_end

        return Ended(*run_to_its_end(command, environ, limit, KEPT), monotonic() - started)
    with ExitStack() as stack:
        (output, output_end), (errors, errors_end) = _pipe(stack), _pipe(stack)

        def become() -> None:
            nothing = os.open(os.devnull, os.O_RDONLY)
            for number, end in enumerate((nothing, output_end.fileno(), errors_end.fileno())):
                os.dup2(end, number)
            with suppress(ImportError, OSError, ValueError):  # no core file is left
                import resource

                most = resource.getrlimit(resource.RLIMIT_CORE)[1]
                resource.setrlimit(resource.RLIMIT_CORE, (0, most))
            try:
                os.execvpe(command[0], list(command), dict(environ))
            except OSError as error:
                os.write(2, f"{error.strerror}\n".encode())
                os._exit(processes.CANNOT_START)

        with _child(become) as report:
            output_end.close()
            errors_end.close()
            report_text, said = _read(report, (output.fileno(), errors.fileno()), started + limit)
    seconds = monotonic() - started
    if report_text == b"":
        raise OSError(f"{command[0]}: no process can be started, or its reaper was killed")
    status = None if report_text is None else os.waitstatus_to_exitcode(int(report_text))
    return Ended(status, *said, seconds)


def _pipe(stack: ExitStack) -> tuple[FileIO, FileIO]:
    """Return the ends of a pipe, to read and to write; both are closed with the stack."""
    read, write = os.pipe()
    return stack.enter_context(FileIO(read)), stack.enter_context(FileIO(write, "w"))


def _read(
    report: int, streams: tuple[int, int], deadline: float
) -> tuple[bytes | None, tuple[str, str]]:
    """Read until nothing is left of a child, or the deadline has come.

    Return what the reaper has report_text, None before it has; and the ends of the streams.
    """
    import selectors

    kept = {descriptor: bytearray() for descriptor in (report, *streams)}
    with selectors.DefaultSelector() as selector:
        for descriptor in kept:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            left = deadline - monotonic()
            # What cannot be killed may hold the streams open for ever.
            ready = selector.select(max(left, 0) if report in selector.get_map() else 0)
            if left <= 0 or not ready:
                break
            for key, _ in ready:
                data = os.read(key.fd, CHUNK)
                kept[key.fd] += data
                del kept[key.fd][:-KEPT]
                if not data:
                    selector.unregister(key.fd)
        report_text = None if report in selector.get_map() else bytes(kept[report])
    output, errors = (kept[stream].decode("utf-8", "replace") for stream in streams)
    return report_text, (output, errors)


# --- what it said ---------------------------------------------------------------------------------

_LINES = 3  # of what a child said last


def error_of(errors: str) -> str:
    """Return the line of an uncaught Python exception at the end of what a program printed."""
    # What is printed while the interpreter ends may follow it.
    for line in reversed(errors.rstrip().splitlines()[-20:]):
        name, colon, _ = line.partition(":")
        last = name.rpartition(".")[2]
        is_name = all(part.isidentifier() for part in name.split("."))
        if is_name and last[:1].isupper() and (colon or last.endswith(("Error", "Exit"))):
            return line
    return ""


def telling_lines(errors: str, runner: str = "<string>") -> tuple[str, ...]:
    """Return the lines that tell most: what a library said before it died, and where.

    The frames of `runner`, the file of ours that the child runs, tell nothing.
    """

    def kept(frame: re.Match[str]) -> str:
        return "" if frame[1] == runner else frame[0]

    left = re.sub(r'^  File "([^"\n]*)".*\n(?:    .*\n)*', kept, errors, flags=re.MULTILINE)
    lines = [line.strip() for line in left.splitlines() if line.strip("^~ ")]
    for number, line in enumerate(lines):
        if line.startswith(("Fatal Python error", "Windows fatal exception")):
            frames = [text for text in lines[number:] if text.startswith('File "')]
            telling = [frame for frame in frames if not _is_pythons(frame)]
            return (*lines[max(0, number - 2) : number], line, *telling[:1])
    begin = max((n for n, line in enumerate(lines) if line.startswith("Traceback")), default=-1)
    if begin < 0:
        return tuple(lines[-_LINES:])
    # What a library said before, and the line that raised.
    return (*lines[max(begin - 1, 0) : begin], *lines[begin + 1 :][-_LINES:])


def _is_pythons(frame: str) -> bool:
    """Return True if a line of a stack is in the standard library or in no file."""
    place = frame.partition('"')[2]
    return origin_of_file(place) == STANDARD or place.startswith("<")


# --- imports --------------------------------------------------------------------------------------
# The child is as it would be without us: nothing of the guard is in it. It imports what is
# installed, and not what lies in the working directory.

# As -P does, which Python 3.9 and 3.10 do not know.
WITHOUT_FOLDER = 'import sys\nif sys.path[:1] == [""]:\n    del sys.path[0]\n'
_HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Another release of cudaguard may have been imported by a start-up file.
_OURSELVES = f"""
for _name in [_name for _name in sys.modules if _name.partition(".")[0] == "cudaguard"]:
    del sys.modules[_name]
sys.path.insert(0, {_HOME!r})
import cudaguard
sys.path.remove({_HOME!r})
"""
SIGN = "cudaguard-doctor: "
# In one write each, so that a crash loses nothing. The first word of a line tells how far it came.
_IMPORTS = (
    WITHOUT_FOLDER
    + """
import os, sys
def _note(text, *, _write=os.write, _out=os.dup(1)):
    _write(_out, ("\\n" + {sign!r} + text + "\\n").encode())
for _name in {names!r}:
    _note("import " + _name)
    __import__(_name)
{last}
_note("imported")
"""
)


class Ending(NamedTuple):
    """End of a child that was to import modules."""

    kind: str  # this and the next one: as of `Failure`
    text: str
    # The module that was being imported; empty if all were, and the end of the process failed
    at: str
    said: tuple[str, ...]  # last, on standard error
    seconds: float  # how long it took
    answer: Any = None  # what the code that was added has noted


def try_imports(
    names: Sequence[str], environ: Mapping[str, str], limit: float, *, code: str = ""
) -> Ending:
    """Import modules in this order, in a child; an OSError says that none can be started.

    `code` is run after the imports; it may ``_note("answer " + json)``.
    """
    last = _OURSELVES + code if code else ""
    program = _IMPORTS.format(sign=SIGN, names=tuple(names), last=last)
    command = (sys.executable, "-X", "faulthandler", "-c", program)
    ended = run_command(command, {**environ, "CUDAGUARD": "off"}, limit)
    notes = [line[len(SIGN) :] for line in ended.output.splitlines() if line.startswith(SIGN)]
    reached = notes[-1] if notes else ""
    answers = [note.partition(" ")[2] for note in notes if note.startswith("answer ")]
    return Ending(
        *ended.failure(),
        "" if reached == "imported" else reached.partition(" ")[2],
        telling_lines(ended.errors),
        ended.seconds,
        json.loads(answers[-1]) if answers else None,
    )


# --- functions ------------------------------------------------------------------------------------
# Whoever looks at a file may wait for ever: for a network disk whose server is gone, for somebody
# who writes to a pipe. No signal but SIGKILL ends that, and a thread that waits so is never ended.


class NoAnswer(NamedTuple):
    """Answer of a function that gave none: it failed, or took too long."""

    why: str  # why there is nothing, as in ``it has not ended within 30 s``
    seconds: float  # how long it was waited for
    is_late: bool  # its time was up


def run_in_fork(tasks: Sequence[Callable[[], Any]], limit: float) -> Iterator[Any]:
    """Yield what each function returns, or `NoAnswer`; the others are run all the same.

    What they return is pickled, and what they change here is lost. One that is stuck for `limit`
    seconds is given up together with its process, so that the next one finds nothing of what the
    others have kept for it.
    """
    from multiprocessing import Pipe

    left = list(tasks)
    while left:
        with ExitStack() as stack:
            answers, end = map(stack.enter_context, Pipe(duplex=False))
            try:
                stack.enter_context(_child(partial(_answer, tuple(left), end)))
            except (AttributeError, OSError):  # there is no fork, or no further process
                yield from (task() for task in left)
                return
            end.close()
            is_there = True
            while left and is_there:
                started = monotonic()
                del left[0]
                try:
                    if answers.poll(limit):
                        yield answers.recv()
                        continue
                    why, is_late = f"it has not ended within {limit:g} s", True
                    limit = min(limit, AFTERWARDS)
                except EOFError:
                    why, is_late = "its process has died", False
                yield NoAnswer(why, monotonic() - started, is_late)
                is_there = False


def _answer(tasks: Iterable[Callable[[], Any]], end: Connection) -> None:
    for task in tasks:
        end.send(task())
