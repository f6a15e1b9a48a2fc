"""The record of what the processes below ``cudaguard run`` do: its folder, and their faults.

Beside the journal, ``faulthandler`` writes there what a process did when it died or was asked.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import NamedTuple

from cudaguard.core.record import FAULTS, JOURNAL
from cudaguard.files import LARGEST, open_to_write, read_end, write_text
from cudaguard.tools.common import Scratch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

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
            pid = entry.name[len(FAULTS) :]
            size = entry.stat(follow_symlinks=False).st_size
            left -= min(_MOST, size)
            is_dump = size and entry.name.startswith(FAULTS) and pid.isdecimal() and len(pid) < 20
            if is_dump and left > 0 and int(pid) not in skipped:
                found[int(pid)] = read_faults(entry.path)
    return found


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
