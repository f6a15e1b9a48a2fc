"""The libraries of this process, read from the dynamic loader's own list.

The list (``link_map``) is part of glibc's debugger interface; ``dl_iterate_phdr`` would call back
into Python under the loader's lock, which deadlocks as soon as a second thread loads something.
All memory is read through ``/proc/self/mem``: an address that has been unmapped in the meantime
is an error there and not a crash.

Source: ``link.h``, ``elf.h``, ``dlinfo(3)``, ``proc(5)``; System V ABI, chapter 5.
"""

from __future__ import annotations

import errno
from typing import NamedTuple

from cudaguard.elf.process import at_start
from cudaguard.files import os, ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from typing_extensions import Self

MOST_LIBRARIES = 1 << 16  # a damaged list may go round in circles
LONGEST_PATH = 1 << 12
ENTRY = 32  # bytes of an entry that are public: base, name, dynamic section, next entry
_PAGE = 1 << 12
_RTLD_DI_LINKMAP = 2


class Memory:
    """The memory of this process, for reading; a context manager that holds a descriptor.

    Raises:
        OSError: by every method, for an address that cannot be read.
    """

    def __init__(self) -> None:
        self._file = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._file)

    def some(self, address: int, length: int) -> bytes:
        """Return up to `length` bytes; fewer where readable memory ends."""
        try:
            return os.pread(self._file, length, address)
        except ours(OverflowError, ValueError, MemoryError):  # no address, or no length
            raise OSError(errno.EFAULT, f"no memory at {address:#x}") from None

    def read(self, address: int, length: int) -> bytes:
        """Return `length` bytes."""
        data = self.some(address, length)
        if len(data) != length:
            raise OSError(errno.EFAULT, f"{length} bytes at {address:#x} cannot be read")
        return data

    def number(self, address: int) -> int:
        """Return the 64-bit word at an address."""
        return int.from_bytes(self.read(address, 8), "little")

    def text(self, address: int, limit: int = LONGEST_PATH) -> bytes:
        """Return the bytes up to the next zero byte, at most `limit`."""
        found = b""
        while len(found) < limit:
            place = address + len(found)
            # Up to the end of the page at most: the next one may not be there.
            part = self.read(place, min(_PAGE - place % _PAGE, 256))
            head, zero, _ = part.partition(b"\0")
            found += head
            if zero:
                break
        return found[:limit]


class Library(NamedTuple):
    """One object that the dynamic loader has mapped.

    Args:
        path: Its file, as the loader found it and with links resolved; empty for the program.
        base: What is added to the addresses that stand in the file.
        dynamic: Address of its dynamic section in memory.
    """

    path: str
    base: int
    dynamic: int


def first_entry() -> int:
    """Return the address of the first entry of the loader's list, which never changes."""
    from cudaguard.elf.rendezvous import rendezvous

    try:
        with Memory() as memory:
            return rendezvous(memory).first
    except ours(OSError):
        return _first_by_ctypes()


def _first_by_ctypes() -> int:
    import ctypes

    program = ctypes.pythonapi  # the program itself, opened already
    dlinfo = program["dlinfo"]
    dlinfo.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    entry = ctypes.c_void_p()
    if dlinfo(program._handle, _RTLD_DI_LINKMAP, ctypes.addressof(entry)) or not entry.value:
        raise OSError(errno.ENOSYS, "the dynamic loader does not give its list of libraries")
    return entry.value


def entries(memory: Memory, entry: int) -> Iterator[tuple[int, int, int, int]]:
    """Walk the loader's list: address of the entry, base, address of the name, dynamic section.

    Args:
        memory: Where the list lies.
        entry: Address of the entry to begin with, as from `first_entry`.

    Raises:
        OSError: The list cannot be read.
    """
    seen: set[int] = set()
    while entry and entry not in seen and len(seen) < MOST_LIBRARIES:
        seen.add(entry)
        words = memory.read(entry, ENTRY)
        base, name, dynamic, following = (
            int.from_bytes(words[at : at + 8], "little") for at in (0, 8, 16, 24)
        )
        yield entry, base, name, dynamic
        entry = following


def loaded_libraries(memory: Memory, entry: int) -> tuple[Library, ...]:
    """Return the libraries in the order in which they were mapped, the program first.

    Args:
        memory: Where the list lies.
        entry: Address of the entry to begin with, as from `first_entry`.

    Raises:
        OSError: The list cannot be read.
    """
    found: list[Library] = []
    for _, base, name, dynamic in entries(memory, entry):
        path = os.fsdecode(memory.text(name)) if name else ""
        found.append(Library(os.path.realpath(path) if path else "", base, dynamic))
    return tuple(found)


def serving_file(name: str) -> str:
    """Return the file that serves who asks for a library by name, as far as that is certain.

    That is the first one in this process, or else in ``LD_LIBRARY_PATH``; otherwise empty.

    Args:
        name: As in ``libnvJitLink.so.12``, which may be a link to ``libnvJitLink.so.12.4.127``.
    """
    try:
        with Memory() as memory:
            mapped = [library.path for library in loaded_libraries(memory, first_entry())]
    except ours(AttributeError, OSError):  # no glibc
        mapped = []
    found = next((file for file in mapped if os.path.basename(file).startswith(name)), "")
    if found:
        return found
    folders = at_start("LD_LIBRARY_PATH").replace(";", ":").split(":")
    files = (os.path.join(folder, name) for folder in folders if folder)
    return next(filter(os.path.exists, files), "")
