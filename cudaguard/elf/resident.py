"""Libraries that are in this process already, asked by name: nothing is loaded by asking.

Source: ``dlopen(3)`` (``RTLD_NOLOAD``), ``dlsym(3)``, ``dlinfo(3)``; glibc, where a handle is the
address of the library's entry in the loader's list.
"""

from __future__ import annotations

import ctypes

from cudaguard.elf.image import Image
from cudaguard.elf.loaded import ENTRY, Library, entries, first_entry
from cudaguard.elf.memory import Memory
from cudaguard.elf.shared_object import SharedObject
from cudaguard.elf.symbols import AddressInfo
from cudaguard.files import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from cudaguard.elf.shared_object import Wanted

_RTLD_DI_TLS_MODID = 9


class Resident:
    """Asks the dynamic loader what it has; a context manager that gives back what it took.

    Raises:
        AttributeError: The C library has no such functions, or no ``RTLD_NOLOAD``.
        OSError: The memory of the process cannot be read.
    """

    def __init__(self) -> None:
        # Its functions keep the interpreter's lock, see `cudaguard.elf.symbols`.
        program = ctypes.pythonapi
        self.program: int = program._handle
        self._flags = os.RTLD_LAZY | os.RTLD_NOLOAD
        self._open, self._close = program["dlopen"], program["dlclose"]
        self._find, self._find_version = program["dlsym"], program["dlvsym"]
        self._place, self._forget_error = program["dladdr"], program["dlerror"]
        self._about = program["dlinfo"]
        for function, types in (
            (self._open, (ctypes.c_char_p, ctypes.c_int)),
            (self._close, (ctypes.c_void_p,)),
            (self._place, (ctypes.c_void_p, ctypes.c_void_p)),
            (self._find, (ctypes.c_void_p, ctypes.c_char_p)),
            (self._about, (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)),
            (self._find_version, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)),
        ):
            function.argtypes = types
            function.restype = ctypes.c_void_p
        self._place.restype = self._close.restype = self._about.restype = ctypes.c_int
        self._forget_error.restype = ctypes.c_void_p
        self._handles: dict[str, int] = {}
        self.memory = Memory()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for handle in filter(None, self._handles.values()):
            self._close(handle)
        self._forget_error()  # of what nobody has: the next caller may ask for his own
        self.memory.__exit__(None, None, None)

    def handle(self, name: str) -> int:
        """Return the handle of a library that is mapped, by name or path; 0 if it is not."""
        found = self._handles.get(name)
        if found is None:
            found = self._open(os.fsencode(name), self._flags) or 0
            self._handles[name] = found
        return found

    def path(self, handle: int) -> str:
        """Return the file of a library as the loader has it; empty for the program."""
        return os.fsdecode(self.memory.text(self.memory.number(handle + 8)))

    def object(self, handle: int) -> SharedObject:
        """Return the symbol tables of a library, as they are in memory.

        Raises:
            OSError: They cannot be read.
        """
        return SharedObject(Image(self.memory, self._library(handle)))

    def libraries(self) -> list[Library]:
        """Return the libraries in the order in which they were mapped; none can be unloaded now.

        Raises:
            OSError: The list of the loader cannot be read.
        """
        found = []
        for entry, *_ in tuple(entries(self.memory, first_entry())):
            path = self.path(entry)
            if self.handle(path) == entry:  # else it was unloaded meanwhile
                found.append(self._library(entry, os.path.realpath(path) if path else ""))
        return found

    def _library(self, handle: int, path: str = "") -> Library:
        words = self.memory.read(handle, ENTRY)
        base, _, dynamic = (int.from_bytes(words[at : at + 8], "little") for at in (0, 8, 16))
        return Library(path, base, dynamic)

    def owner(self, handle: int, name: bytes) -> int:
        """Return the handle of whichever library has a symbol that `handle` finds; 0 if unknown."""
        place = AddressInfo()
        address = self._find(handle, name)
        if not address or not self._place(address, ctypes.addressof(place)) or not place.file:
            return 0
        return self.handle(os.fsdecode(place.file))

    def address(self, handle: int, name: bytes) -> int:
        """Return the address of a symbol in a library or what it brought; 0 if it has none."""
        return (self._find(handle, name) or 0) if handle else 0

    def has(self, handle: int, wanted: Wanted) -> bool:
        """Return True if a library or what it brought has a symbol, perhaps of a version."""
        if wanted.version:
            return bool(self._find_version(handle, wanted.name, wanted.version))
        return bool(self._find(handle, wanted.name))

    def thread_local_module(self, handle: int) -> int:
        """Return the number by which threads know a library; 0 if it has nothing for them."""
        number = ctypes.c_size_t()
        failed = self._about(handle, _RTLD_DI_TLS_MODID, ctypes.addressof(number))
        return 0 if failed else number.value
