"""The wording of Python stacks: all threads, the standard library folded, equal stacks once."""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from cudaguard.tools.layout import Page

    Frame = dict[str, Any]

_LIBRARY = re.compile(r"/lib\w*/(?:python|pypy)3[.\d]*t?/")
_BETWEEN = ("cudaguard", "importlib")
_FROZEN = re.compile(r"^<frozen (.+)>$")
_GUARD = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


def short(file: str) -> str:
    """Return a path without the folder that all packages, or Python's own modules, are in."""
    file = file.rpartition("-packages/")[2]
    found = _LIBRARY.search(file)
    return file[found.end() :] if found else file


def library_module(file: str) -> str:
    """Return the module of the standard library that a source is, ``cudaguard`` for ours, or ""."""
    if file.startswith(_GUARD):
        return "cudaguard"
    frozen = _FROZEN.match(file)
    name = frozen[1] if frozen else _name_in_library(file)
    return "importlib" if name.startswith(("importlib", "_frozen_importlib")) else name


def _name_in_library(file: str) -> str:
    found = None if "-packages/" in file else _LIBRARY.search(file)
    if found is None or not file.endswith(".py"):
        return ""
    parts = file[found.end() : -len(".py")].split("/")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_extension_of_python(file: str) -> bool:
    """Return True if a library is an extension module of the standard library."""
    return "/lib-dynload/" in file


def lines_of(stack: Sequence[Frame]) -> list[str]:
    """Return a line for each frame, innermost first; frames of the standard library in one.

    Those of the import machinery and our own are left out, as Python's tracebacks do.
    """
    lines: list[str] = []
    folded: dict[str, None] = {}
    count = 0
    for frame in (*stack, None):
        module = library_module(frame["file"]) if frame is not None else ""
        if module in _BETWEEN:
            continue
        if frame is not None and module and lines:
            folded[module] = None
            count += 1
            continue
        if count:
            lines.append(f"({count} frame{'s'[: count > 1]} of {', '.join(folded)})")
            folded, count = {}, 0
        if frame is not None:
            lines.append(line_of(frame))
    return lines


def line_of(frame: Frame) -> str:
    """Return one frame as ``file:line in function: source``."""
    source = f": {frame['source']}" if frame["source"] else ""
    return f"{short(frame['file'])}:{frame['line']} in {frame['function']}{source}"


def add_frame(page: Page, frame: str, indent: int) -> None:
    """Add one line of a stack; its source is not broken."""
    where, colon, source = frame.partition(": ")
    page.add(f"{where}{colon.strip()}", indent, whole=source)


def threads(found: Sequence[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """Return a heading and lines for the other threads; those with equal stacks share them."""
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for thread in found:
        alike.setdefault(tuple(lines_of(thread["stack"])), []).append(thread)
    return [(_heading(group), list(lines)) for lines, group in alike.items()]


def _heading(group: Sequence[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(thread["name"] for thread in group if thread["name"]))
    named = f" ({', '.join(names[:3])})" if names else ""
    if len(group) > 1:
        return f"{len(group)} other threads{named}"
    return f"another thread{named}"
