"""The record of what the processes below ``cudaguard run`` do: its folder, faults, and journal.

``faulthandler`` writes there what a process did when it died or was asked. A journal is read as
`Line`. Nothing is taken from prose.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

from cudaguard.core.findings import Finding
from cudaguard.core.record import FAULTS, JOURNAL
from cudaguard.core.reports import PREREQUISITE, Repaired
from cudaguard.files import LARGEST, open_to_write, read_end, write_text
from cudaguard.model import SEVERITIES, TYPE_CHECKING, NamedTuple
from cudaguard.tools.common import Scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence
    from typing import Any

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

    `remove` deletes it: processes that go on after the program do without a record.
    """

    def __init__(self) -> None:
        parent = os.environ.get("TMPDIR") or os.environ.get("TEMP") or "/tmp"  # noqa: S108  # the name is not to be guessed
        self.folder = self._problem = ""
        self.remove: Callable[[], None] = lambda: None
        try:
            scratch = Scratch("run", parent)
            self.remove = scratch.close
            os.close(open_to_write(os.path.join(scratch.folder, JOURNAL), os.O_CREAT | os.O_EXCL))
            self.folder = scratch.folder
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
# Kind of a line -> the kinds of what is over then.
OVER = {"imported": ("import",), "loaded": ("load",), "failed": ("import", "load")}


class Raised(NamedTuple):
    """An error ends the program."""

    text: str  # its class and what it says
    # file, line and function of the frames that it came through, innermost last
    stack: tuple[tuple[str, int, str], ...]
    finding: Finding | None  # what it means, if that is known
    # True if the program's own output says so: by a warning, or below the traceback
    is_said: bool = False


class Line(NamedTuple):
    """One line of a journal: what has happened, as `kind` and `name` of an `Event` say.

    The program may have written to its details: one that is not there, or of another type, is
    empty. Besides an event's kinds there are ``child`` (one has ended) and ``kill``.
    """

    pid: int  # the process
    thread: int  # ``threading.get_ident()`` of the thread
    time: float  # seconds since the epoch
    where: str  # ``file:line`` of the code behind it; may be empty
    kind: str
    name: str
    details: Mapping[str, Any]

    def text(self, key: str) -> str:
        """Return a detail that is a text."""
        found = self.details.get(key)
        return found if isinstance(found, str) else ""

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a detail that is a list of texts."""
        found = self.details.get(key)
        return tuple(map(str, found)) if isinstance(found, list) else ()

    def number(self, key: str) -> int:
        """Return a detail that is a whole number."""
        found = self.details.get(key)
        return found if type(found) is int else 0

    @property
    def is_fork(self) -> bool:
        """True where a process has begun as a fork, and goes on as the same program."""
        return self.kind == "start" and self.details.get("is_fork") is True

    @property
    def rank(self) -> int | None:
        """The place of a process among those of a job, counted from 0; None if it has none."""
        return self.number("rank") if type(self.details.get("rank")) is int else None

    @property
    def other(self) -> int:
        """The process that a signal was sent to, or the child that has ended."""
        is_one = self.kind in ("child", "kill") and self.name.isdecimal()
        return int(self.name) if is_one and len(self.name) < _DIGITS else 0

    @property
    def module(self) -> str:
        """The module that is imported; empty for a library that is loaded by ctypes."""
        return self.name if self.kind == "import" else self.text("module")

    @property
    def file(self) -> str:
        """The file that the loader is asked for; empty for an import."""
        return "" if self.kind == "import" else self.name

    def repaired(self) -> Repaired | None:
        """Return the repair that it tells of."""
        if self.kind not in ("repair", PREREQUISITE):
            return None
        subject, how = self.text("subject") or self.name, self.text("how")
        return Repaired(self.text("rule"), self.text("verb") or self.kind, subject, how)

    def finding(self) -> Finding:
        """Return what was found then."""
        severity: Any = self.text("severity")
        return Finding(
            what=self.text("what") or self.name,
            rule=self.text("rule") or None,
            severity=severity if severity in SEVERITIES else "warning",
            evidence=self.texts("evidence"),
            links=self.texts("links"),
            **{key: self.text(key) for key in ("id", "consequence", "remedy", "command")},
        )

    def raised(self) -> Raised:
        """Return the error that ends the program."""
        frames, meant = self.details.get("stack"), self.details.get("finding")
        stack = tuple(
            (frame[0], frame[1], frame[2])
            for frame in (frames if isinstance(frames, list) else ())
            if isinstance(frame, list) and list(map(type, frame)) == [str, int, str]
        )
        finding = None
        if isinstance(meant, dict):
            finding = self._replace(name="", details=meant).finding()
        return Raised(self.name, stack, finding, self.details.get("is_said") is True)


def read_events(path: str, most: int = LARGEST) -> list[Line]:
    """Return what happened, oldest first; what a full disk has cut is left out.

    A missing file is as an empty one; of one with more than `most` bytes the end counts.
    """
    try:
        return lines_in(read_end(path, most))
    except OSError:
        return []


def lines_in(data: bytes) -> list[Line]:
    """Return the lines of a journal that are in a part of it."""
    import json

    found = []
    decode = json.JSONDecoder(parse_int=_number, parse_constant=_number).decode
    for text in data.splitlines():
        try:
            entry = decode(text.decode())
        except (ValueError, RecursionError):
            continue
        is_line = isinstance(entry, dict) and all(
            isinstance(entry.get(key), kind) for key, kind in _LINE.items()
        )
        if is_line and 0 <= entry["time"] < _LATEST:
            entry["details"] = entry.get("details") or {}
            found.append(Line(*(entry[key] for key in Line._fields)))
    return found


def _number(text: str) -> int:
    """Return a whole number; ValueError for one of millions of digits, and for NaN."""
    return int(text if len(text) <= _DIGITS else "too large")
