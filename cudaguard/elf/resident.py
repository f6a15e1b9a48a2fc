"""Libraries that are in this process already, asked by name: nothing is loaded by asking.

Source: ``dlopen(3)`` (``RTLD_NOLOAD``), ``dlsym(3)``, ``dladdr(3)``; glibc, where a handle is the
address of the library's entry in the loader's list.
"""

from __future__ import annotations

import ctypes

from cudaguard.elf.process import Image, Memory, library_at
from cudaguard.elf.symbols import SharedObject
from cudaguard.files import os
from cudaguard.model import TYPE_CHECKING, lazy

if TYPE_CHECKING:
    from typing_extensions import Self

    from cudaguard.elf.symbols import Wanted


class AddressInfo(ctypes.Structure):
    """``Dl_info`` of ``dlfcn.h``."""

    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


class Resident:
    """Asks the dynamic loader what it has; a context manager that gives back what it took.

    Attributes:
        program: The program's own handle. By it a name is looked for in the global scope: the
            program, what it was started with, and everything loaded with ``RTLD_GLOBAL`` since.

    Raises:
        AttributeError: The C library has no such functions, or no ``RTLD_NOLOAD``.
        OSError: by what reads memory, where that cannot be read.
    """

    def __init__(self) -> None:
        # Its functions keep the interpreter's lock, as an import does while it maps a library:
        # letting go of it at each of many short calls would hand it to the busiest thread.
        program = ctypes.pythonapi
        self.program: int = program._handle
        self._flags = os.RTLD_LAZY | os.RTLD_NOLOAD
        self._open, self._close = program["dlopen"], program["dlclose"]
        self._find, self._find_version = program["dlsym"], program["dlvsym"]
        self._place, self._forget_error = program["dladdr"], program["dlerror"]
        for function, types in (
            (self._open, (ctypes.c_char_p, ctypes.c_int)),
            (self._close, (ctypes.c_void_p,)),
            (self._place, (ctypes.c_void_p, ctypes.c_void_p)),
            (self._find, (ctypes.c_void_p, ctypes.c_char_p)),
            (self._find_version, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)),
            (self._forget_error, ()),
        ):
            function.argtypes = types
            function.restype = ctypes.c_void_p
        self._place.restype = self._close.restype = ctypes.c_int
        self._handles: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in filter(None, self._handles.values()):
            self._close(handle)
        self._forget_error()  # of what nobody has: the next caller may ask for his own
        if "memory" in vars(self):
            self.memory.__exit__(None, None, None)

    @lazy
    def memory(self) -> Memory:
        """The memory of this process; who asks for addresses alone does without it."""
        return Memory()

    def handle(self, name: str) -> int:
        """Return the handle of a library that is mapped, by name or path; 0 if it is not."""
        if (found := self._handles.get(name)) is None:
            found = self._open(os.fsencode(name), self._flags) or 0
            self._handles[name] = found
        return found

    def path(self, handle: int) -> str:
        """Return the file of a library as the loader has it; empty for the program."""
        return library_at(self.memory, handle)[0].path

    def object(self, handle: int) -> SharedObject:
        """Return the symbols of a library, as they are in memory.

        Raises:
            OSError: They cannot be read.
        """
        return SharedObject(Image(self.memory, library_at(self.memory, handle)[0]))

    def address(self, handle: int, name: bytes) -> int:
        """Return the address of a symbol in a library or what it brought; 0 if it has none."""
        return (self._find(handle, name) or 0) if handle else 0

    def has(self, handle: int, wanted: Wanted) -> bool:
        """Return True if a library or what it brought has a symbol, perhaps of a version."""
        if wanted.version:
            return bool(self._find_version(handle, wanted.name, wanted.version))
        return bool(self._find(handle, wanted.name))

    def owner(self, handle: int, name: bytes) -> str:
        """Return the file of whichever library has a symbol that `handle` finds; see `file_at`."""
        return self.file_at(self._find(handle, name) or 0)

    def file_at(self, address: int) -> str:
        """Return the file of the library that an address lies in, as the loader has it.

        For the program it is what that was started by. Empty if unknown.
        """
        place = AddressInfo()
        if not address or not self._place(address, ctypes.addressof(place)) or not place.file:
            return ""
        return os.fsdecode(place.file)
