"""What a mapped library is bound to: read from the words that the loader has filled in for it.

A function or a variable is one address for the whole process. A thread-local variable has one in
every thread: the loader writes down in which library it lies and how far in, or how far it is from
the thread's own pointer.

Source: System V ABI, chapter 5; U. Drepper, "ELF Handling For Thread-Local Storage"; the psABIs of
x86-64 and AArch64; ``sysdeps/x86_64/tlsdesc.c`` and ``elf/dl-tlsdesc.h`` of glibc.
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
)
from cudaguard.files import os, ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudaguard.elf.image import Image

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
