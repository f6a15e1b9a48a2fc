"""Attributes of imported modules, read without loading lazy ones."""

from __future__ import annotations

import sys

from cudaguard.files import own_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def peek(module: object, name: str) -> Any:
    """Return an attribute of a module, None if it has none; a lazy module is not loaded by it."""
    if module is None:  # not imported, which is asked at each import
        return None
    try:
        return object.__getattribute__(module, "__dict__").get(name)
    except own_errors(AttributeError):
        return None


def has_ctypes() -> bool:
    """Return True if the program has imported ctypes, and completely."""
    return peek(sys.modules.get("ctypes"), "pythonapi") is not None
