"""Finds the owner of a name in the global symbol scope of this process.

Source: ``dlsym(3)``, ``dladdr(3)``. The scope is asked through the program's own handle: that
searches the program, what it was started with, and everything loaded with ``RTLD_GLOBAL`` since.
"""

from __future__ import annotations

import ctypes

from cudaguard.files import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class AddressInfo(ctypes.Structure):
    """``Dl_info`` of ``dlfcn.h``."""

    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


class GlobalScope:
    """Looks names up in the global scope; nothing is loaded or bound by looking.

    Raises:
        AttributeError: The C library offers no ``dlsym`` or ``dladdr``.
    """

    def __init__(self) -> None:
        # Its functions keep the interpreter's lock, as an import does while it maps a library:
        # letting go of it at each of many short calls would hand it to the busiest thread.
        program = ctypes.pythonapi
        self._handle = ctypes.c_void_p(program._handle)
        self._find = program["dlsym"]
        self._find.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
        self._find.restype = ctypes.c_void_p
        self._place = program["dladdr"]
        self._place.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        self._forget_error = program["dlerror"]
        self._forget_error.restype = ctypes.c_void_p

    def addresses(self, names: Iterable[bytes]) -> list[int]:
        """Return the address that each name has in the global scope, 0 where it has none."""
        find, handle = self._find, self._handle
        found = [find(handle, name) or 0 for name in names]
        self._forget_error()  # of names that nobody has: the next caller may ask for his own
        return found

    def owner(self, address: int) -> str:
        """Return the file of the library that has an address; empty for the program or none."""
        place = AddressInfo()
        if not address or not self._place(address, ctypes.addressof(place)) or not place.file:
            return ""
        return os.path.realpath(os.fsdecode(place.file))
