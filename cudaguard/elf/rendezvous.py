"""Where the dynamic loader keeps its list and its global scope, found without asking it.

The kernel tells where the program lies, the program's dynamic section where the loader has left
its structure for debuggers, and that where the list begins. The search list of the program is the
global scope; it stands in the private part of the program's entry, right behind three values that
the kernel tells as well. What does not look as expected is not taken for it.

Source: ``getauxval(3)``, ``proc(5)``; ``link.h`` (``r_debug``, ``link_map``); ``include/link.h`` of
glibc, of which several releases have these fields in this order. Tried with 2.36 and 2.43 on
x86-64, with 2.41 on AArch64.
"""

from __future__ import annotations

import errno
from typing import NamedTuple

from cudaguard.elf.reader import Budget, UnreadableError
from cudaguard.elf.shared_object import GnuTable
from cudaguard.files import open_file, ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.elf.memory import Memory

_AT_PHDR, _AT_PHNUM, _AT_BASE, _AT_ENTRY = 3, 5, 7, 9
_PT_DYNAMIC, _PT_PHDR, _HEADER = 2, 6, 56
_DT_DEBUG, _DT_STRTAB, _DT_SYMTAB, _DT_GNU_HASH = 21, 5, 6, 0x6FFFFEF5
_R_MAP = 8  # in `r_debug`: where the address of the first entry lies
_MOST_TAGS = 256
_MOST_HEADERS = 64
_FIXED = 0x400000  # where a program lies that cannot be moved
# Bytes of an entry: at most so many until the search list; the public part, with what precedes
# it in the list, the entry itself and its name space behind it.
_ENTRY, _PUBLIC = 1536, 56


class ProgramHeaders(NamedTuple):
    """What the loader has on record of the program: its segments, their number, its start."""

    headers: int
    number: int
    start: int


class Rendezvous(NamedTuple):
    """Where to look.

    Args:
        first: Address of the first entry of the loader's list: that of the program.
        scope: Address of two words: that of the search list, and how many entries it has; 0 if
            that cannot be told.
    """

    first: int
    scope: int


def rendezvous(memory: Memory) -> Rendezvous:
    """Find the loader's list and the global scope.

    Args:
        memory: That of this process.

    Raises:
        OSError: They cannot be found.
    """
    try:
        return _found(memory)
    except ours(UnreadableError):
        raise _unknown() from None


def _found(memory: Memory) -> Rendezvous:
    known = _auxiliary()
    program = ProgramHeaders(known[_AT_PHDR], known[_AT_PHNUM], known[_AT_ENTRY])
    base, dynamic = _segments(memory, program)
    tags = _tags(memory, dynamic)
    is_started_by_loader = not known[_AT_BASE]  # as in `ld.so python`: it is the program then
    if is_started_by_loader:
        debug = _symbol(memory, base, tags, b"_r_debug")
    else:
        debug = tags.get(_DT_DEBUG, 0)
    first = memory.number(debug + _R_MAP) if debug else 0
    if not first:
        raise _unknown()
    own = _words(memory.read(first, _PUBLIC))
    if is_started_by_loader:
        program = _program_at(memory, own[0])
    elif own[0] != base or own[2] != dynamic:
        raise _unknown()
    if own[4] or own[5] != first or own[6]:  # it is the first, itself, in the first name space
        raise _unknown()
    return Rendezvous(first, _scope(memory, first, program))


def _auxiliary() -> dict[int, int]:
    with open_file("/proc/self/auxv", "rb", buffering=0) as file:
        words = _words(file.readall())
    found = dict(zip(words[::2], words[1::2]))
    if not found.get(_AT_PHDR) or not 0 < found.get(_AT_PHNUM, 0) <= _MOST_HEADERS:
        raise _unknown()
    return {key: found.get(key, 0) for key in (_AT_PHDR, _AT_PHNUM, _AT_BASE, _AT_ENTRY)}


def _segments(memory: Memory, program: ProgramHeaders) -> tuple[int, int]:
    """Return the base of an object, and the address of its dynamic section."""
    words = _words(memory.read(program.headers, program.number * _HEADER))
    kinds = {words[at] & 0xFFFFFFFF: words[at + 2] for at in range(0, len(words), _HEADER // 8)}
    if _PT_DYNAMIC not in kinds:
        raise _unknown()
    # Without an entry for itself, as in a loader, the table stands behind the header of the file.
    base = program.headers - kinds.get(_PT_PHDR, 64)
    return base, base + kinds[_PT_DYNAMIC]


def _tags(memory: Memory, dynamic: int) -> dict[int, int]:
    words = _words(memory.some(dynamic, 16 * _MOST_TAGS))
    found: dict[int, int] = {}
    for tag, value in zip(words[::2], words[1::2]):
        if not tag:
            return found
        found[tag] = value
    raise _unknown()


def _symbol(memory: Memory, base: int, tags: dict[int, int], name: bytes) -> int:
    """Return the address of a symbol that an object defines."""
    table, symbols, strings = (
        value + base if value < base else value
        for value in (tags.get(tag, 0) for tag in (_DT_GNU_HASH, _DT_SYMTAB, _DT_STRTAB))
    )
    for index in GnuTable(memory.read, table, Budget()).candidates(name):
        words = _words(memory.read(symbols + 24 * index, 24))
        if memory.text(strings + (words[0] & 0xFFFFFFFF), len(name) + 1) == name:
            return base + words[1]
    raise _unknown()


def _program_at(memory: Memory, base: int) -> ProgramHeaders:
    """Return what the header of a file says that is mapped from its beginning."""
    place = base or _FIXED
    header = memory.read(place, 64)
    if header[:6] != b"\x7fELF\x02\x01":
        raise _unknown()
    start, table, count = _number(header, 24, 8), _number(header, 32, 8), _number(header, 56, 2)
    return ProgramHeaders(place + table, count, base + start)


def _scope(memory: Memory, first: int, program: ProgramHeaders) -> int:
    """Return where the search list stands in the entry of the program."""
    words = _words(memory.some(first, _ENTRY))
    for at in range(_PUBLIC // 8, len(words) - 4):
        if words[at : at + 2] == [program.headers, program.start]:
            count = words[at + 4] & 0xFFFFFFFF
            is_it = words[at + 2] & 0xFFFF == program.number and words[at + 3] and count
            if is_it and memory.number(words[at + 3]) == first:
                return first + 8 * (at + 3)
    return 0


def _words(data: bytes) -> list[int]:
    return memoryview(data[: len(data) // 8 * 8]).cast("Q").tolist()


def _number(data: bytes, place: int, length: int) -> int:
    return int.from_bytes(data[place : place + length], "little")


def _unknown() -> OSError:
    return OSError(errno.ENOSYS, "the dynamic loader's list of libraries cannot be found")
