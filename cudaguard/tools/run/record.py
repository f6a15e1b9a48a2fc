"""The record of what the processes below ``cudaguard run`` do: its folder, faults, and journal.

``faulthandler`` writes there what a process did when it died or was asked. A journal is read as
`Line`, whose `event` is one of the classes here, or a repair as it was told
(`cudaguard.core.reports.Repaired`). Nothing is taken from prose.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

from cudaguard.core.findings import Finding
from cudaguard.core.record import FAULTS, JOURNAL
from cudaguard.core.reports import PREREQUISITE, Repaired
from cudaguard.files import LARGEST, open_to_write, read_end, write_text
from cudaguard.model import SEVERITIES, NamedTuple
from cudaguard.tools.common import Scratch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence
    from typing import Any, Union

    Event = Union[
        "Started", "ProcessEnded", "ModeSet", "Begun", "Over", "Mapped", "CudaUsed", "Found",
        "Raised", "Signaled", Repaired, None,
    ]  # fmt: skip
    Frames = Sequence[tuple[str, int, str]]

_MOST, _MOST_IN_ALL = 1 << 20, 1 << 24  # bytes of dumps: the last ones of a file, of all files
_ROOM = 1 << 14  # bytes; more than one line of the record
_FATAL = "(?:Fatal Python error|Windows fatal exception): "
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d{1,9}) in (?P<function>.*)$')
_HEADING = re.compile(
    r"^(?P<is_current>Current t|T)hread 0x(?P<id>[0-9a-f]{1,16}) .*\(most recent call first\):$"
)
# Blank lines stand between the threads of one dump; the next dump follows without one.
_NEXT_DUMP = re.compile(r"(?<!\n)\n(?=(?:Current t|T)hread 0x)")
_NAME = re.compile(r"^\w+ \w+ \w+ \[(?P<name>.*)\] \(")  # Python 3.14 and later


class RunRecord:
    """A new, private, temporary `folder`; empty where none can be made, and no record is kept.

    Its `lock` (-1 without a folder) keeps it from being taken for abandoned; `remove` deletes it:
    processes that go on after the program do without a record.
    """

    def __init__(self) -> None:
        # As `tempfile` does, which would be most of what this process imports.
        parent = os.environ.get("TMPDIR") or os.environ.get("TEMP") or "/tmp"  # noqa: S108  # the name is not to be guessed
        self.folder, self.lock, self._problem = "", -1, ""
        self.remove: Callable[[], None] = lambda: None
        try:
            scratch = Scratch("run", parent)
            self.remove = scratch.close
            os.close(open_to_write(os.path.join(scratch.folder, JOURNAL), os.O_CREAT | os.O_EXCL))
            self.folder, self.lock = scratch.folder, scratch.lock
        except OSError as error:
            self._problem = str(error)
            self.remove()

    def problem(self) -> str:
        """Return why something may be missing from the record, or an empty string."""
        if self.folder:
            try:  # a process that cannot write gives its record up without a word
                write_text(os.path.join(self.folder, "room"), " " * _ROOM)
                if os.lstat(os.path.join(self.folder, JOURNAL)).st_size > LARGEST:
                    return f"more than {LARGEST >> 20} MiB were recorded"
            except OSError as error:
                return str(error)
            if os.name == "posix" and not os.path.exists("/proc/self/maps"):
                return "there is no /proc that would tell what is mapped"
        return self._problem


class Thread(NamedTuple):
    """The Python frames of one thread."""

    id: int  # ``threading.get_ident()`` of it
    name: str  # its name; empty where Python does not tell
    frames: Frames  # file, line and function, innermost first


class FaultDump(NamedTuple):
    """One dump of ``faulthandler``."""

    what: str  # as in ``Segmentation fault``; empty for a dump that was asked for
    frames: Frames  # file, line and function of the thread concerned, innermost first
    # its C frames as they stand there (Python 3.14 and later), innermost first
    c_frames: tuple[str, ...]
    thread: int = 0  # the identifier of the thread that died; 0 if that is none of Python's
    others: tuple[Thread, ...] = ()  # the other threads, in the order of the dump
    time: float = 0.0  # when its file was written to last, in seconds since the epoch
    name: str = ""  # of the thread concerned; empty where Python does not tell


def faults_in(folder: str, skipped: Container[int] = ()) -> dict[int, list[FaultDump]]:
    """Return the dumps in the folder of a record by process."""
    found: dict[int, list[FaultDump]] = {}
    left = _MOST_IN_ALL
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            pid, size = pid_of(entry.name), entry.stat(follow_symlinks=False).st_size
            left -= min(_MOST, size)
            if pid and size and left > 0 and pid not in skipped:
                found[pid] = read_faults(entry.path)
    return found


def pid_of(name: str) -> int:
    """Return the process whose dumps a file of that name has; 0 for any other file."""
    pid = name[len(FAULTS) :]
    is_number = name.startswith(FAULTS) and pid.isdecimal() and len(pid) < _DIGITS
    return int(pid) if is_number else 0


def read_faults(path: str) -> list[FaultDump]:
    """Return the last dumps in a file, oldest first; a missing file has none."""
    try:
        time = os.stat(path).st_mtime
        text = read_end(path, _MOST).decode(errors="replace")
    except OSError:
        return []
    asked, *fatal = re.split(f"^{_FATAL}", text, flags=re.MULTILINE)
    dumps = [("", part) for part in _NEXT_DUMP.split(asked) if part.strip()]
    dumps += [(part.partition("\n")[0].strip(), part) for part in fatal]
    return [_dump(what, part, time) for what, part in dumps]


def _dump(what: str, text: str, time: float) -> FaultDump:
    """Read one dump; its frames are those of the current thread, or of the last (main) one."""
    threads: list[Thread] = []
    frames: list[tuple[str, int, str]] = []
    c_frames: list[str] = []
    current = -1
    for line in text.splitlines():
        heading = _HEADING.match(line)
        frame = None if heading else _FRAME.match(line)
        if heading:
            if heading["is_current"].startswith("C"):
                current = len(threads)
            frames = []
            name = _NAME.match(line)
            threads.append(Thread(int(heading["id"], 16), name["name"] if name else "", frames))
        elif frame:
            frames.append((frame["file"], int(frame["line"]), frame["function"]))
        elif line.startswith("  Binary file "):
            c_frames.append(line.strip())
    if not threads:
        return FaultDump(what, tuple(frames), tuple(c_frames), 0, (), time)
    if not threads[-1].name and "\n...\n" not in text:  # Python begins with the newest of 100
        threads[-1] = threads[-1]._replace(name="MainThread")
    own = threads.pop(current)
    id = own.id if current >= 0 else 0
    others = tuple(thread._replace(frames=tuple(thread.frames)) for thread in threads)
    return FaultDump(what, tuple(own.frames), tuple(c_frames), id, others, time, own.name)


# --- The journal ----------------------------------------------------------------------------------

# Of a line of the journal; the program may have written to it as well.
_LINE: dict[str, Any] = {
    "pid": int, "kind": str, "name": str, "thread": int, "where": str, "time": (int, float),
    "details": (dict, type(None)),
}  # fmt: skip
_LATEST = 1e11  # seconds since the epoch
_DIGITS = 20  # of a whole number, which may be the identifier of a thread
_END = {"imported": ("import",), "loaded": ("load",), "failed": ("import", "load")}


class Started(NamedTuple):
    """A program has begun, perhaps in a process that was another program before."""

    parent: int | None  # the process that has started it; None if that is not known
    program: tuple[str, ...]  # the words that followed the interpreter
    # its place among the processes of a job, counted from 0; None if it has none
    rank: int | None = None
    ranks: int = 0  # how many there are; 0 if that is not known
    is_fork: bool = False  # True if it is a fork that goes on as the same program


class Signaled(NamedTuple):
    """A signal was sent to a process, or to the group that it leads; or has killed a child."""

    pid: int  # that process
    signal: int  # the number of the signal; 0 for a child that has ended with another status than 0
    is_end: bool  # True if the child has ended


class ProcessEnded(NamedTuple):
    """The process has ended in its own good way."""


class ModeSet(NamedTuple):
    """The guard was switched on, off or over."""

    mode: str


class Begun(NamedTuple):
    """An import or a load has begun."""

    kind: str  # ``import`` or ``load``
    module: str  # its name; empty for a library that was loaded by ctypes
    file: str  # what the loader was asked for; empty for an import
    importing: tuple[str, ...]  # the modules whose code was running, outermost first


class Over(NamedTuple):
    """An import or a load is over."""

    kinds: tuple[str, ...]  # of which kind it was, as far as that is known
    name: str  # the module, or the file
    is_failed: bool  # has it raised?
    missing: str = ""  # the library that the loader did not find, if that is why


class Mapped(NamedTuple):
    """A library is there that was not before."""

    file: str  # its file
    by: str  # what the loader was asked for that has brought it; empty if that is not known


class CudaUsed(NamedTuple):
    """CUDA was initialized, or a context created."""

    what: str  # which of them
    words: str  # who did what
    actor: str  # the module that did it; empty if that is not known
    how: str  # as in `cudaguard.features.cuda_init.facts.Change`
    device: int  # ordinal of the device that got a context


class Found(NamedTuple):
    """Something was found."""

    finding: Finding


class Raised(NamedTuple):
    """An error ends the program."""

    text: str  # its class and what it says
    # file, line and function of the frames that it came through, innermost last
    stack: tuple[tuple[str, int, str], ...]
    finding: Finding | None  # what it means, if that is known
    # True if the program's own output says so: by a warning, or below the traceback
    is_said: bool = False


class Line(NamedTuple):
    """One line of a journal."""

    pid: int  # the process
    thread: int  # ``threading.get_ident()`` of the thread
    time: float  # seconds since the epoch
    where: str  # ``file:line`` of the code behind it; may be empty
    event: Event  # what has happened; None for what concerns nobody who replays it


def read_events(path: str, most: int = LARGEST) -> list[Line]:
    """Return what happened, oldest first; what a full disk has cut is left out.

    A missing file is as an empty one; of one with more than `most` bytes the end counts.
    """
    try:
        return typed(lines_in(read_end(path, most)))
    except OSError:
        return []


def lines_in(data: bytes) -> list[dict[str, Any]]:
    """Return the lines of a journal that are in a part of it."""
    import json

    found = []
    decode = json.JSONDecoder(parse_int=_number, parse_constant=_number).decode
    for line in data.splitlines():
        try:
            entry = decode(line.decode())
        except (ValueError, RecursionError):
            continue
        is_line = isinstance(entry, dict) and all(
            isinstance(entry.get(key), kind) for key, kind in _LINE.items()
        )
        if is_line and 0 <= entry["time"] < _LATEST:
            found.append(entry)
    return found


def _number(text: str) -> int:
    """Return a whole number; ValueError for one of millions of digits, and for NaN."""
    return int(text if len(text) <= _DIGITS else "too large")


def typed(lines: Iterable[Mapping[str, Any]]) -> list[Line]:
    """Return the lines of a journal as what they stand for."""
    return [
        Line(line["pid"], line["thread"], line["time"], line["where"], _event(line))
        for line in lines
    ]


def _event(line: Mapping[str, Any]) -> Event:
    kind, name, details = line["kind"], line["name"], _Details(line.get("details") or {})
    if kind == "import":
        return Begun("import", name, "", details.texts("importing"))
    if kind == "mapping":
        return Begun("load", details.text("module"), name, details.texts("importing"))
    if kind in _END:
        return Over(_END[kind], name, kind == "failed", details.text("missing"))
    if kind == "mapped":
        return Mapped(name, details.text("by"))
    if kind in ("repair", PREREQUISITE):
        subject, how = details.text("subject") or name, details.text("how")
        return Repaired(details.text("rule"), details.text("verb") or kind, subject, how)
    if kind == "finding":
        return Found(_finding(details, name))
    if kind == "cuda":
        what, actor, how = (details.text(key) for key in ("kind", "actor", "how"))
        return CudaUsed(what, name, actor, how, details.number("device") or 0)
    if kind in ("install", "uninstall"):
        return ModeSet(name)
    if kind == "start":
        program, ranks = details.texts("program"), details.number("ranks") or 0
        parent, rank = details.number("parent"), details.number("rank")
        return Started(parent, program, rank, ranks, details.get("is_fork") is True)
    if kind == "error":
        meant = details.get("finding")
        finding = _finding(_Details(meant), "") if isinstance(meant, dict) else None
        return Raised(name, details.frames("stack"), finding, details.get("is_said") is True)
    if kind in ("child", "kill") and name.isdecimal() and len(name) < _DIGITS:
        return Signaled(int(name), details.number("signal") or 0, kind == "child")
    return ProcessEnded() if kind == "end" else None


class _Details(dict):  # type: ignore[type-arg]  # what JSON has
    """The details of a line, to which the program may have written."""

    def text(self, key: str) -> str:
        found = self.get(key)
        return found if isinstance(found, str) else ""

    def texts(self, key: str) -> tuple[str, ...]:
        found = self.get(key)
        return tuple(map(str, found)) if isinstance(found, list) else ()

    def number(self, key: str) -> int | None:
        found = self.get(key)
        return found if type(found) is int else None

    def frames(self, key: str) -> tuple[tuple[str, int, str], ...]:
        found = self.get(key)
        return tuple(
            (frame[0], frame[1], frame[2])
            for frame in (found if isinstance(found, list) else ())
            if isinstance(frame, list) and list(map(type, frame)) == [str, int, str]
        )


def _finding(details: _Details, name: str) -> Finding:
    severity: Any = details.text("severity")
    return Finding(
        what=details.text("what") or name,
        rule=details.text("rule") or None,
        severity=severity if severity in SEVERITIES else "warning",
        evidence=details.texts("evidence"),
        links=details.texts("links"),
        **{key: details.text(key) for key in ("id", "consequence", "remedy", "command")},
    )
