"""Libraries that are in this process already, asked by name: nothing is loaded by asking.

Source: ``dlopen(3)`` (``RTLD_NOLOAD``), ``dlsym(3)``, ``dlinfo(3)``; glibc, where a handle is the
address of the library's entry in the loader's list.
"""

from __future__ import annotations

import ctypes

from cudaguard.elf.image import (
    DT_JMPREL,
    DT_PLTRELSZ,
    DT_RELA,
    DT_RELACOUNT,
    DT_RELASZ,
    MOST_TEXT,
    Image,
)
from cudaguard.elf.loaded import ENTRY, Library, entries, first_entry
from cudaguard.elf.memory import Memory
from cudaguard.elf.shared_object import SharedObject
from cudaguard.files import os, ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from typing_extensions import Self

    from cudaguard.elf.shared_object import Wanted

# --- Finds the owner of a name in the global symbol scope of this process -------------------------
# Source: ``dlsym(3)``, ``dladdr(3)``. The scope is asked through the program's own handle: that
# searches the program, what it was started with, and everything loaded with ``RTLD_GLOBAL`` since.


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


_RTLD_DI_TLS_MODID = 9


class Resident:
    """Asks the dynamic loader what it has; a context manager that gives back what it took.

    Raises:
        AttributeError: The C library has no such functions, or no ``RTLD_NOLOAD``.
        OSError: The memory of the process cannot be read.
    """

    def __init__(self) -> None:
        # Its functions keep the interpreter's lock, see `cudaguard.elf.resident`.
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


# --- What a mapped library is bound to: read from the words that the loader has filled in for it.
# A function or a variable is one address for the whole process. A thread-local variable has one in
# every thread: the loader writes down in which library it lies and how far in, or how far it is
# from the thread's own pointer.
#
# Source: System V ABI, chapter 5; U. Drepper, "ELF Handling For Thread-Local Storage"; the psABIs
# of x86-64 and AArch64; ``sysdeps/x86_64/tlsdesc.c`` and ``elf/dl-tlsdesc.h`` of glibc.

_RELOCATION = 24  # bytes: where, which symbol and how, what is added
# How a reference to a thread-local variable is filled in, on x86-64 and on AArch64.
_MODULE = (16, 1028)  # DTPMOD64, the offset in the next word
_DISTANCE = (18, 1030)  # TPOFF64, TPREL
_DESCRIPTOR = (36, 1031)  # TLSDESC: a function, and what it is called with
_THREAD_LOCAL = frozenset(_MODULE + _DISTANCE + _DESCRIPTOR)
_FARTHEST = 1 << 22  # bytes from the thread's pointer to what has a fixed place


def bound_addresses(image: Image, targets: Iterable[range]) -> frozenset[int]:
    """Return the addresses within `targets` that a library refers to.

    These lie in its global offset table and in its own variables, such as tables of functions.

    Args:
        image: The library.
        targets: Where the libraries lie whose addresses are wanted.

    Raises:
        OSError: It cannot be read, or makes no sense.
    """
    spans = tuple(targets)
    _, writable = image.segments()
    found: set[int] = set()
    for part in writable:
        found |= _within(image.some(part.start, len(part)), spans)
    return frozenset(found)


class ThreadLocals:
    """Thread-local variables, and who is bound to them."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, int], int] = {}

    def add(self, module: int, offset: int, address: int) -> None:
        """Look for this variable as well.

        Args:
            module: The number by which threads know the library that defines it; 0 if unknown.
            offset: How far it is in what the library has for each thread.
            address: Where it is in this thread.
        """
        self._places[0, address - _thread_pointer()] = address
        if module:  # 0 is that of fixed places
            self._places[module, offset] = address

    def bound(self, image: Image) -> frozenset[int]:
        """Return the addresses, in this thread, of those variables that a library refers to.

        Raises:
            OSError: It cannot be read, or makes no sense.
        """
        slots = _thread_local_slots(image) if self._places else ()
        places = (self._places.get(_target(image, *slot)) for slot in slots)
        return frozenset(place for place in places if place)


def _thread_local_slots(image: Image) -> Iterable[tuple[int, int]]:
    """Return each reference to a thread-local variable: which kind, and where it is filled in."""
    relative = image.value(DT_RELACOUNT) * _RELOCATION  # these come first
    tables = (
        (image.address(DT_RELA) + relative, image.value(DT_RELASZ) - relative),
        (image.address(DT_JMPREL), image.value(DT_PLTRELSZ)),
    )
    for start, size in tables:
        data = image.some(start, min(size, MOST_TEXT)) if start and size > 0 else b""
        data = data[: len(data) // _RELOCATION * _RELOCATION]
        places = memoryview(data).cast("Q")[::3]
        kinds = memoryview(data).cast("I")[2::6]
        for place, kind in zip(places, kinds):
            if kind in _THREAD_LOCAL:
                yield kind, image.library.base + place


def _target(image: Image, kind: int, slot: int) -> tuple[int, int]:
    """Return where a filled reference leads: to which library (0: a fixed place), and how far."""
    first, second = _two_words(image, slot)
    if kind in _DISTANCE:
        return 0, first
    if kind in _MODULE:
        return first, second
    if abs(second) < _FARTHEST:
        return 0, second
    return _two_words(image, second)


def _two_words(image: Image, address: int) -> tuple[int, int]:
    data = image.some(address, 16) if address > 0 else b""
    return (
        int.from_bytes(data[:8], "little", signed=True),
        int.from_bytes(data[8:], "little", signed=True),
    )


def _thread_pointer() -> int:
    """Return what the offsets of thread-local variables count from, in this thread.

    Where the C library does not tell, nothing is found to lie at a fixed place.
    """
    program = ctypes.pythonapi
    try:
        this_thread = program["pthread_self"]
        # On AArch64 it comes after glibc's record of the thread.
        record = ctypes.c_uint32.in_dll(program, "_thread_db_sizeof_pthread").value
    except ours(AttributeError, ValueError):
        return 0
    this_thread.argtypes, this_thread.restype = (), ctypes.c_size_t
    found: int = this_thread()
    return found + record if os.uname().machine == "aarch64" else found


def _within(data: bytes, targets: tuple[range, ...]) -> frozenset[int]:
    """Return the aligned words of `data` that lie within one of the targets."""
    found = set()
    # The upper five bytes of all those addresses are few: search for them, at C speed.
    for upper in {upper for t in targets for upper in range(t.start >> 24, (t.stop >> 24) + 1)}:
        sign = upper.to_bytes(5, "little")
        at = data.find(sign)
        while at >= 0:
            word = int.from_bytes(data[at - 3 : at + 5], "little")
            if at % 8 == 3 and any(word in target for target in targets):
                found.add(word)
            at = data.find(sign, at + 1)
    return frozenset(found)
