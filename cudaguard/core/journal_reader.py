"""What a program has left behind: its journal, and what ``faulthandler`` wrote when it died."""

from __future__ import annotations

import re
from typing import NamedTuple

from cudaguard.files import LARGEST, read_end
from cudaguard.files.calls import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Of a line of the journal; the program may have written to it as well.
_LINE: dict[str, Any] = {
    "pid": int, "kind": str, "name": str, "thread": int, "where": str, "time": (int, float),
    "details": (dict, type(None)),
}  # fmt: skip
_FATAL = "Fatal Python error: "
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d{1,9}) in (?P<function>.*)$')
_HEADING = re.compile(
    r"^(?P<is_current>Current t|T)hread 0x(?P<thread>[0-9a-f]+) .*\(most recent call first\):$"
)
_C_HEADING = "Current thread's C stack trace (most recent call first):"


class FaultDump(NamedTuple):
    """One dump of ``faulthandler``.

    Args:
        what: As in ``Segmentation fault``; empty for a dump that was asked for.
        frames: File, line and function of the thread concerned, innermost first.
        c_frames: Its C frames as they stand there (Python 3.14 and later), innermost first.
        thread: The identifier of the thread that died; 0 if that is none of Python's.
    """

    what: str
    frames: tuple[tuple[str, int, str], ...]
    c_frames: tuple[str, ...]
    thread: int = 0


def read_journal(path: str, most: int = LARGEST) -> list[dict[str, Any]]:
    """Return the lines of a journal; what a full disk has cut is left out, a missing file empty.

    Args:
        path: The file.
        most: Bytes; its end counts.
    """
    import json

    found = []
    for line in _end_of(path, most).splitlines():
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and all(
            isinstance(entry.get(key), kind) for key, kind in _LINE.items()
        ):
            found.append(entry)
    return found


def read_faults(path: str) -> list[FaultDump]:
    """Return the dumps in a file, oldest first; a missing file has none."""
    text = _end_of(path).decode(errors="replace")
    asked, *fatal = re.split(f"^{_FATAL}", text, flags=re.MULTILINE)
    dumps = [("", asked)] if asked.strip() else []
    dumps += [(part.partition("\n")[0].strip(), part) for part in fatal]
    return [FaultDump(what, *_stack(part), _current(part)) for what, part in dumps]


def _current(text: str) -> int:
    headings = (_HEADING.match(line) for line in text.splitlines())
    current = (h["thread"] for h in headings if h and h["is_current"].startswith("C"))
    return int(next(current, "0"), 16)


def _stack(text: str) -> tuple[tuple[tuple[str, int, str], ...], tuple[str, ...]]:
    """Return the frames of the current thread (of the last, the main one, if none is), and of C."""
    current: list[tuple[str, int, str]] = []
    other: list[tuple[str, int, str]] = []
    c_frames: list[str] = []
    into = other
    in_c = False
    for line in text.splitlines():
        heading = _HEADING.match(line)
        if line == _C_HEADING:
            in_c = True
        elif heading:
            in_c, into = False, current if heading["is_current"].startswith("C") else other
            into.clear()
        elif in_c and line.startswith("  Binary file "):
            c_frames.append(line.strip())
        else:
            frame = _FRAME.match(line)
            if frame:
                into.append((frame["file"], int(frame["line"]), frame["function"]))
    return tuple(current or other), tuple(c_frames)


def last_initialized(path: str) -> str:
    """Return the library whose constructors the dynamic loader had called last.

    Args:
        path: What it wrote under ``LD_DEBUG=libs``.
    """
    found = re.findall(rb"calling init: (\S+)", _end_of(path))
    return os.fsdecode(found[-1]) if found else ""


def _end_of(path: str, most: int = LARGEST) -> bytes:
    try:
        return read_end(path, most)
    except OSError:
        return b""
