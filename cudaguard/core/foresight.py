"""What the program is about to import anyway, by the lines that follow in whatever imports now.

An order that is wanted only where both modules are used costs nothing there: the second import
statement becomes the first.
"""

from __future__ import annotations

import sys

from cudaguard.core.caller import caller_frame, is_between
from cudaguard.files import os, ours, passes, read_bytes, standard_library
from cudaguard.system.modules import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

_LARGEST = 200_000  # bytes of a source; nobody writes such files by hand, and parsing takes long
_MOST_FRAMES = 50
_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep


def coming(wanted: frozenset[str], likely: dict[str, str] | None = None) -> frozenset[str]:
    """Return those of some modules that the statements which follow import for certain.

    Args:
        wanted: The modules. Where no source names one of them, which is the rule, nothing is
            parsed.
        likely: Gets those that follow behind statements which the program may depend on: the
            module, and the line.
    """
    frames = _frames(caller_frame())
    while frames and not _names_one(frames[-1].f_code.co_filename, wanted):
        del frames[-1]
    certain: set[str] = set()
    goes_on = True  # nothing but imports, constants and definitions so far
    for frame in frames:
        file, code, current = frame.f_code.co_filename, frame.f_code, frame.f_lineno
        following = _follow(file, current)
        for module, line in following:
            # The file may have been edited since: its code tells what is really imported.
            found = [
                name
                for name in wanted
                if f"{module}.".startswith(f"{name}.") and module in code.co_names
            ]
            if not module or not (found or line == current or _is_installed_module(module)):
                goes_on = False
            if goes_on:
                certain.update(found)
            elif likely is not None:
                likely.update({name: f"{file}:{line}" for name in found if name not in likely})
        if not (following or _is_installed(file)):
            goes_on = False
    return frozenset(certain)


def _names_one(file: str, wanted: frozenset[str]) -> bool:
    source = _source(file)
    return any(name.rpartition(".")[2].encode() in source for name in wanted)


def _is_installed(file: str) -> bool:
    """Return True for a file of an installed package or of Python."""
    return bool(_package_of(file)) or file.startswith(_STANDARD_LIBRARY)


def _is_installed_module(module: str) -> bool:
    """Return True for a module that is installed or Python's: the program's own may set things."""
    root = module.partition(".")[0]
    if root in sys.modules or root in standard_library():
        return True
    from importlib.machinery import PathFinder

    try:
        spec = PathFinder.find_spec(root)
    except Exception as error:  # an entry of sys.path that is none
        if passes(error):
            raise
        return False
    return spec is not None and all(
        map(_is_installed, spec.submodule_search_locations or (spec.origin or "",))
    )


def _package_of(file: str) -> str:
    """Return the folder or file below ``site-packages`` that a file is in, empty if it is not."""
    for place in ("/site-packages/", "/dist-packages/"):
        _, found, rest = file.rpartition(place)
        if found:
            return rest.partition("/")[0]
    return ""


def _frames(frame: FrameType | None) -> list[FrameType]:
    """Return the frames from here outwards that are the program's."""
    found: list[FrameType] = []
    while frame is not None and len(found) < _MOST_FRAMES:
        if not is_between(frame):
            found.append(frame)
        frame = frame.f_back
    return found


def _follow(file: str, line: int) -> list[tuple[str, int]]:
    from cudaguard.system.source import imports_after, parsed

    try:
        return imports_after(parsed(_source(file), file), line)
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
