"""Runs a command as a child: with a time limit, no input, and bounded memory for its output."""

from __future__ import annotations

import json
import os
import sys
from typing import NamedTuple

from cudaguard.files import read_bytes
from cudaguard.model import Record
from cudaguard.system.lending import WITHOUT_FOLDER, lend

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from subprocess import Popen
    from typing import Any

# --- Which processors and addresses this process may use; whether the kernel has killed for memory.
# Source: ``proc(5)``, ``cgroups(7)``, ``getrlimit(2)``; kernel documentation, "Control Group v2",
# "Memory Resource Controller".

# Where the hierarchies are mounted: the second one beside those of version 1.
_VERSION_2 = ("sys/fs/cgroup", "sys/fs/cgroup/unified")
_VERSION_1 = "sys/fs/cgroup/memory"


def cores() -> int:
    """Return how many processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def oom_kills(root: str = "/") -> int:
    """Return how many processes of this control group the kernel has killed for want of memory.

    -1 where nobody tells.

    Args:
        root: The folder that has ``proc`` and ``sys``.
    """
    for folder, is_second in _groups(root):
        name = "memory.events" if is_second else "memory.oom_control"
        for line in _lines(os.path.join(folder, name)):
            word, _, number = line.partition(" ")
            if word == "oom_kill" and number.isdecimal():
                return int(number)
    return -1


def address_space() -> int:
    """Return the limit of the address space (``ulimit -v``) in bytes, 0 for none."""
    try:
        import resource
    except ImportError:
        return 0
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return 0 if limit == resource.RLIM_INFINITY else limit


def _groups(root: str) -> Iterator[tuple[str, bool]]:
    """Yield the folders of our memory control groups, innermost first, with True for version 2."""
    for line in _lines(os.path.join(root, "proc/self/cgroup")):
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        places: tuple[str, ...] = ()
        if not controllers:
            places = _VERSION_2
        elif "memory" in controllers.split(","):
            places = (_VERSION_1,)
        # In a container the path may be that of the host: what can be seen is the top then.
        parts = [part for part in group.split("/") if part not in ("", "..")]
        for place in places:
            for count in range(len(parts), -1, -1):
                yield os.path.join(root, place, *parts[:count]), not controllers


def _lines(path: str) -> Iterator[str]:
    try:
        text = read_bytes(path, 1 << 20).decode()
    except (OSError, ValueError):
        return
    yield from map(str.strip, text.splitlines())


KEPT = 1 << 16  # bytes of each stream, the last ones
CHUNK = 1 << 16
LINGER = 1.0  # seconds for output when the command has ended, and others go on writing


class Ended(Record):
    """How a child ended.

    Args:
        status: Exit status; negative, the signal that ended it; None, it ran into the limit.
        output: The end of what it wrote to standard output.
        errors: The end of what it wrote to standard error.
        seconds: How long it ran.
    """

    status: int | None
    output: str
    errors: str
    seconds: float


def run(command: Sequence[str], environ: Mapping[str, str], limit: float) -> Ended:
    """Run a command to its end, or to the limit, and end whatever it leaves behind.

    All that the command has started is killed, processes that have detached themselves from it
    included: at the limit, when the command has ended by itself, and when this process ends,
    however it does.

    Args:
        command: The command and its arguments.
        environ: The environment of the child.
        limit: Seconds.

    Raises:
        OSError: The command cannot be started.
    """
    from time import monotonic

    from cudaguard.system.keeper import start

    started = monotonic()
    report, end = os.pipe()
    try:
        try:
            keeper = start(command, environ, end)
        finally:
            os.close(end)
        try:
            output, errors, told = _read(keeper, report, started + limit)
        finally:
            _dismiss(keeper)
    finally:
        os.close(report)
    return Ended(_status(told, command[0]), _text(output), _text(errors), monotonic() - started)


def _status(told: bytes | None, name: str) -> int | None:
    """Return the exit status that a keeper tells; None for a command that has not ended."""
    from cudaguard.system.keeper import NOT_STARTED

    if told is None:
        return None
    told = told.partition(b"\n")[0]  # what was not started ends as well
    if told.startswith(NOT_STARTED):
        number = int(told[len(NOT_STARTED) :])
        raise OSError(number, os.strerror(number), name)
    if not told:
        raise OSError(f"{name}: the process that looks after it was ended")
    status = int(told)
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _read(
    keeper: Popen[bytes], report: int, deadline: float
) -> tuple[bytearray, bytearray, bytes | None]:
    """Read both streams until the command has ended, or the deadline has come.

    Returns:
        The ends of both, and what the keeper tells of the end of the command, if there is one.
    """
    import selectors
    from time import monotonic

    output, errors = bytearray(), bytearray()
    told: bytes | None = None
    with selectors.DefaultSelector() as selector:
        for stream, kept in ((keeper.stdout, output), (keeper.stderr, errors)):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ, kept)
        selector.register(report, selectors.EVENT_READ)
        while told is None or len(selector.get_map()):
            left = deadline - monotonic()
            # What the command has started may hold the streams open for ever: what is there when
            # the command has ended is read, and no more.
            ready = selector.select(max(left, 0) if told is None else 0)
            if left <= 0 or not ready:
                break
            for key, _ in ready:
                data = os.read(key.fd, CHUNK)
                if key.fd == report:
                    told, deadline = data, min(deadline, monotonic() + LINGER)
                elif data:
                    key.data.extend(data)
                    del key.data[:-KEPT]
                if key.fd == report or not data:
                    selector.unregister(key.fileobj)
    return output, errors, told


def _dismiss(keeper: Popen[bytes]) -> None:
    """Have a keeper end all that is below it."""
    import subprocess

    from cudaguard.system.keeper import PATIENCE

    for stream in (keeper.stdin, keeper.stdout, keeper.stderr):
        if stream is not None:
            stream.close()
    try:
        keeper.wait(2 * PATIENCE)
    except subprocess.TimeoutExpired:
        keeper.kill()


def _text(data: bytearray) -> str:
    return data.decode("utf-8", "replace")


# --- Imports modules in a child process, and tells how that ended ---------------------------------
# The child is as it would be without us: nothing of the guard is in it. It imports what is
# installed, and not what lies in the working directory.

SIGN = "cudaguard-doctor: "
# In one write each, so that a crash loses nothing. The first word of a line tells how far it came.
_CHILD = (
    WITHOUT_FOLDER
    + """
import os, sys
def _note(text, *, _write=os.write, _out=os.dup(1)):
    _write(_out, ("\\n" + {sign!r} + text + "\\n").encode())
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
except (ImportError, OSError, ValueError):
    pass
for _name in {names!r}:
    _note("import " + _name)
    __import__(_name)
{last}
_note("imported")
"""
)
_LINES = 3  # of what a child said last
_OURS = ('File "<string>"', "^", "~", "Traceback (most recent", "Current thread", "Thread 0x",
         "Extension modules:", "<no Python frame>")  # fmt: skip


class Ending(NamedTuple):
    """How a child ended.

    Args:
        kind: Empty if all is well, else ``signal``, ``hang``, ``error`` (an exception) or ``exit``.
        text: The signal, the error's last line, or the exit status.
        at: The module that was being imported; empty if all were, and the end of the process is
            what failed.
        said: What it said last on standard error.
        seconds: How long it took.
        answer: What the code that was added has noted.
    """

    kind: str
    text: str
    at: str
    said: tuple[str, ...]
    seconds: float
    answer: Any = None


def try_imports(
    names: Sequence[str], environ: Mapping[str, str], limit: float, *, code: str = ""
) -> Ending:
    """Import modules in this order, in a child.

    Args:
        names: The modules.
        environ: The environment.
        limit: Seconds.
        code: Run after the imports; it may ``_note("answer " + json)``.

    Raises:
        OSError: No child can be started.
    """
    variables = {**environ, "CUDAGUARD": "off"}
    last = lend() + code if code else ""
    program = _CHILD.format(sign=SIGN, names=tuple(names), last=last)
    command = (sys.executable, "-X", "faulthandler", "-c", program)
    ended = run(command, variables, limit)
    notes = [line[len(SIGN) :] for line in ended.output.splitlines() if line.startswith(SIGN)]
    reached = notes[-1] if notes else ""
    answers = [note.partition(" ")[2] for note in notes if note.startswith("answer ")]
    kind, text = _kind(ended.status, ended.errors)
    return Ending(
        kind,
        text,
        "" if reached == "imported" else reached.partition(" ")[2],
        _said(ended.errors),
        ended.seconds,
        json.loads(answers[-1]) if answers else None,
    )


def _kind(status: int | None, errors: str) -> tuple[str, str]:
    if status == 0:
        return "", ""
    if status is None:
        return "hang", ""
    if status < 0:
        return "signal", _name_of(-status)
    lines = [line for line in errors.splitlines() if line.strip()]
    if "Traceback (most recent call last)" in errors and lines:
        last = next((line for line in reversed(lines) if line[:1].strip()), lines[-1])
        return "error", last.strip()
    return "exit", str(status)


def _name_of(number: int) -> str:
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _said(errors: str) -> tuple[str, ...]:
    """Return the lines that tell most: what a library said before it died, and where."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    for number, line in enumerate(lines):
        if line.startswith("Fatal Python error"):
            frames = [one for one in lines[number:] if one.startswith("File ")]
            telling = [one for one in frames if not _is_pythons(one)]
            return (*lines[max(0, number - 2) : number], line, *telling[:1])
    return tuple(line for line in lines if not line.startswith(_OURS))[-_LINES:]


def _is_pythons(frame: str) -> bool:
    """Return True if a line of a stack is in the standard library or in our own code."""
    place = frame.partition('"')[2]
    standard = os.path.dirname(os.__file__)
    is_standard = place.startswith(standard) and "-packages" not in place
    return is_standard or place.startswith("<")


def end_children() -> None:
    """End the children of this process, and each with it what it has started."""
    from glob import glob
    from signal import SIGTERM

    for file in glob("/proc/self/task/*/children"):
        try:
            for pid in map(int, read_bytes(file, 1 << 20).split()):
                os.kill(pid, SIGTERM)  # to the keepers: see `cudaguard.system.keeper`
        except OSError:  # it has ended meanwhile
            continue
