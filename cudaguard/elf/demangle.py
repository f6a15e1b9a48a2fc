"""C++ names as they stand in the source.

Source: the Itanium C++ ABI; ``__cxa_demangle`` of the C++ runtime, where one is mapped already.
"""

from __future__ import annotations

import ctypes
import re

from cudaguard.files import ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_LENGTH = re.compile(r"\d{1,5}")
_START = re.compile(r"_Z(?:N[rVKRO]*)?(?=\d)")
LONGEST = 1 << 14


def readable(symbols: Iterable[str]) -> list[tuple[str, str]]:
    """Return pairs of a symbol and what it is in the source; nothing is loaded for that."""
    try:
        demangle = _of_the_runtime()
    except ours(AttributeError, OSError, ImportError):
        demangle = None
    return [(name, (demangle and demangle(name)) or in_short(name)) for name in symbols]


def _of_the_runtime() -> Callable[[str], str] | None:
    from cudaguard.elf.resident import Resident

    with Resident() as resident:
        # Linked into many a wheel under a name of its own, but then hidden.
        address = resident.address(resident.handle("libstdc++.so.6"), b"__cxa_demangle")
    if not address:
        return None
    call = ctypes.PYFUNCTYPE(
        ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
    )(address)
    free = ctypes.pythonapi["free"]
    free.argtypes, free.restype = (ctypes.c_void_p,), None

    def demangle(name: str) -> str:
        if not name.startswith("_Z") or len(name) > LONGEST:
            return ""
        text = call(name.encode(), None, None, None)
        if not text:
            return ""
        try:
            return ctypes.string_at(text).decode("utf-8", "replace")
        finally:
            free(text)

    return demangle


def in_short(name: str) -> str:
    """Return the qualified name alone, without parameters; the symbol itself if that is not easy.

    For a process without a C++ runtime.
    """
    match = _START.match(name)
    if match is None:
        return name
    parts, place = [], match.end()
    while True:
        length = _LENGTH.match(name, place)
        if length is None:
            break
        place = length.end() + int(length[0])
        parts.append(name[length.end() : place])
        if name[2] != "N":
            break
    if place > len(name):
        return name
    # What follows the arguments of a template is not read: a member of it, or nothing.
    return f"{'::'.join(parts)}{'<...>' if name[place : place + 1] == 'I' else '(...)'}"
