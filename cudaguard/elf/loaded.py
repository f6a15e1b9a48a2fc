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

from cudaguard.elf.memory import Memory
from cudaguard.elf.process import at_start
from cudaguard.files import os, ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


MOST_LIBRARIES = 1 << 16  # a damaged list may go round in circles
LONGEST_PATH = 1 << 12
ENTRY = 32  # bytes of an entry that are public: base, name, dynamic section, next entry
_RTLD_DI_LINKMAP = 2


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
