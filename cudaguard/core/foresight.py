"""Which modules the program is about to import anyway, read from the lines that follow.

An order that is wanted only where both modules are used costs nothing there: the second import
statement becomes the first. That is known from the source of whatever is importing just now.
"""

from __future__ import annotations

import sys

from cudaguard.core.caller import caller_frame, is_between
from cudaguard.files import ours, read_bytes
from cudaguard.system.modules import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

_LARGEST = 1 << 20  # bytes of a source; nobody writes such files by hand
_MOST_FRAMES = 50


def coming(wanted: frozenset[str]) -> frozenset[str]:
    """Return those of some modules that the statements which follow import for certain.

    Args:
        wanted: The modules. Where no source names one of them, which is the rule, nothing is
            parsed.
    """
    found: set[str] = set()
    read: set[tuple[str, int]] = set()
    for file, line in _lines(caller_frame()):
        if (file, line) not in read:
            read.add((file, line))
            found.update(_follow(file, line, wanted))
    return frozenset(
        name for name in wanted if any(f"{one}.".startswith(f"{name}.") for one in found)
    )


def _lines(frame: FrameType | None) -> list[tuple[str, int]]:
    """Return file and line of the frames from here outwards that are the program's."""
    found: list[tuple[str, int]] = []
    while frame is not None and len(found) < _MOST_FRAMES:
        if not is_between(frame):
            found.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return found


def _follow(file: str, line: int, wanted: frozenset[str]) -> list[str]:
    source = _source(file)
    if not any(name.rpartition(".")[2].encode() in source for name in wanted):
        return []
    from cudaguard.system.source import imports_after, parsed

    try:
        return imports_after(parsed(source, file), line)
    except ours(SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _source(file: str) -> bytes:
    """Return the source of a file, or of a cell of a notebook; empty if there is none."""
    cached = (peek(sys.modules.get("linecache"), "cache") or {}).get(file)
    if isinstance(cached, tuple) and len(cached) == 4 and cached[1] is None:  # no file: a cell
        return "".join(cached[2]).encode("utf-8", "replace")
    try:
        return read_bytes(file, _LARGEST)
    except ours(OSError, ValueError):
        return b""
