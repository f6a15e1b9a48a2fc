"""What the program is about to do, read from the source of whatever is importing just now.

Which modules it is about to import anyway, by the lines that follow; and whether it is prepared
for an error, by the ``try`` around its line.

An order that is wanted only where both modules are used costs nothing there: the second import
statement becomes the first. Who is prepared for a library that is not there goes another way
then, and is not to be led back by us.
"""

from __future__ import annotations

import sys

from cudaguard.core.caller import caller_frame, is_between
from cudaguard.files import os, ours, read_bytes
from cudaguard.system.modules import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

_LARGEST = 1 << 20  # bytes of a source; nobody writes such files by hand
_MOST_FRAMES = 50
_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep


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


def is_error_expected(library: str) -> bool:
    """Return True if a load that is under way is inside a ``try``, of its package or the program.

    Args:
        library: The file that is loaded. What others try (notebooks run each cell so) says nothing.
    """
    from cudaguard.system.source import is_prepared, parsed

    package = _package_of(library)
    for file, line in dict.fromkeys(_lines(caller_frame())):
        # Threads and worker processes are run in a ``try`` of the standard library.
        own = _package_of(file)
        is_pythons = not own and file.startswith(_STANDARD_LIBRARY)
        if own in ("", package) and not is_pythons:
            try:
                if is_prepared(parsed(_source(file), file), line):
                    return True
            except ours(SyntaxError, ValueError, RecursionError, MemoryError):
                continue
    return False


def _package_of(file: str) -> str:
    """Return the folder or file below ``site-packages`` that a file is in, empty if it is not."""
    for place in ("/site-packages/", "/dist-packages/"):
        _, found, rest = file.rpartition(place)
        if found:
            return rest.partition("/")[0]
    return ""


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
