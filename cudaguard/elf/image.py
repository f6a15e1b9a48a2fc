"""What a mapped library says of itself in memory: its dynamic section and its symbol table.

Source: ``elf.h``; System V ABI, chapter 5; the GNU hash table as the GNU linker writes it.
"""

from __future__ import annotations

import errno
from typing import NamedTuple

from cudaguard.elf.loaded import Library
from cudaguard.elf.reader import CXX_RUNTIME, UNIQUE_OBJECT, Budget, UnreadableError, is_runtime_id
from cudaguard.elf.shared_object import SharedObject
from cudaguard.files import os, ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cudaguard.elf.memory import Memory

DT_NEEDED, DT_PLTRELSZ, DT_PLTGOT, DT_HASH, DT_STRTAB, DT_SYMTAB = 1, 2, 3, 4, 5, 6
DT_RELA, DT_RELASZ, DT_STRSZ, DT_SONAME, DT_JMPREL = 7, 8, 10, 14, 23
DT_RELACOUNT, DT_GNU_HASH = 0x6FFFFFF9, 0x6FFFFEF5
SYMBOL = 24  # bytes of an entry of the symbol table
MOST_TEXT = 1 << 30
_MOST_TAGS, _MOST_SYMBOLS = 1 << 12, 1 << 24
_MOST_MAPPED = 1 << 36  # the libraries of CUDA take gigabytes
_LONGEST_CHAIN = 1 << 16
_PT_LOAD, _PF_W = 1, 2


class Symbols(NamedTuple):
    """The dynamic symbol table of a mapped library."""

    address: int
    table: bytes
    strings: bytes

    @property
    def names(self) -> list[int]:
        """Where the name of each symbol begins in `strings`."""
        return memoryview(self.table).cast("I")[:: SYMBOL // 4].tolist()

    def name(self, start: int) -> bytes:
        """Return the name that begins at `start`."""
        return self.strings[start : self.strings.find(b"\0", start)]


class Image:
    """The dynamic section of a mapped library, read once.

    Args:
        memory: The process.
        library: Which library.

    Raises:
        OSError: by every method as well, where the library cannot be read or makes no sense.
    """

    def __init__(self, memory: Memory, library: Library) -> None:
        self._memory = memory
        self.library = library
        self.budget = Budget(float("inf"))  # the loader has read it already
        self._tags: dict[int, int] = {}
        self._needed: list[int] = []
        place, at_end = library.dynamic, library.dynamic + 16 * _MOST_TAGS
        while place < at_end:
            data = memory.some(place, 512)
            words = memoryview(data[: len(data) // 16 * 16]).cast("Q").tolist()
            if not words:
                break
            for tag, value in zip(words[::2], words[1::2]):
                if tag == 0:
                    return
                if tag == DT_NEEDED:
                    self._needed.append(value)
                else:
                    self._tags[tag] = value
            place += len(words) * 8
        raise OSError(errno.ENOEXEC, f"{library.path}: its dynamic section has no end")

    def __contains__(self, tag: int) -> bool:
        return tag in self._tags

    def address(self, tag: int) -> int:
        """Return the address in memory that a tag gives; 0 where there is no such tag."""
        value = self._tags.get(tag, 0)
        # glibc adds the base where the section can be written; the vdso keeps file addresses.
        return value + self.library.base if 0 < value < self.library.base else value

    def value(self, tag: int) -> int:
        """Return the number that a tag gives, 0 where there is no such tag."""
        return self._tags.get(tag, 0)

    def some(self, address: int, length: int) -> bytes:
        """Return up to `length` bytes of memory; fewer where readable memory ends."""
        return self._memory.some(address, length)

    @property
    def needed(self) -> tuple[str, ...]:
        """The libraries it asks for, as the file names them."""
        return tuple(self._text(start) for start in self._needed)

    @property
    def soname(self) -> str:
        """The name by which other files ask for it, empty if it has none."""
        return self.text(DT_SONAME)

    def text(self, tag: int) -> str:
        """Return the text that a tag gives, empty where there is no such tag."""
        return self._text(self._tags[tag]) if tag in self._tags else ""

    def _text(self, start: int) -> str:
        return self._memory.text(self.address(DT_STRTAB) + start, 1024).decode("utf-8", "replace")

    def is_bound_lazily(self) -> bool:
        """Return True if the loader looks up its functions at their first call.

        It leaves its own entry point in the third word of the procedure linkage table then, and
        only then.
        """
        table = self.address(DT_PLTGOT)
        return DT_PLTRELSZ in self and table > 0 and self._memory.number(table + 16) != 0

    def shows_runtime(self, symbols: Symbols, indices: Iterable[int]) -> bool:
        """Return True if these symbols show a C++ runtime of the library's own to everyone.

        They do by ``std::...::id`` objects, of which the loader keeps one per process.

        Args:
            symbols: Its symbol table.
            indices: Of which symbols.
        """
        names, kinds = symbols.names, symbols.table[4::SYMBOL]
        return (
            UNIQUE_OBJECT in kinds
            and CXX_RUNTIME not in self.needed
            and any(
                kinds[index] == UNIQUE_OBJECT and is_runtime_id(symbols.name(names[index]))
                for index in indices
            )
        )

    def symbols(self) -> Symbols:
        """Return the dynamic symbol table."""
        count, size = self._symbol_count(), self._tags.get(DT_STRSZ, 0)
        if count > _MOST_SYMBOLS or size > MOST_TEXT:
            raise OSError(errno.ENOEXEC, f"{self.library.path}: its symbol table makes no sense")
        address = self.address(DT_SYMTAB)
        return Symbols(
            address,
            self._memory.read(address, count * SYMBOL),
            self._memory.read(self.address(DT_STRTAB), size),
        )

    def _symbol_count(self) -> int:
        read = self._memory.read
        table = self.address(DT_GNU_HASH)
        if not table:
            table = self.address(DT_HASH)  # its second word
            return int.from_bytes(read(table + 4, 4), "little") if table else 0
        buckets, first, blooms, _ = memoryview(read(table, 16)).cast("I").tolist()
        if max(buckets, blooms) > _MOST_SYMBOLS:
            raise OSError(errno.ENOEXEC, f"{self.library.path}: its hash table makes no sense")
        place = table + 16 + 8 * blooms
        last: int = max(memoryview(read(place, 4 * buckets)).cast("I").tolist(), default=0)
        if last < first:
            return first
        # The chain of the last bucket ends with the last symbol; an odd hash marks the end.
        place += 4 * buckets
        while last < _MOST_SYMBOLS:
            hashes = self._memory.some(place + 4 * (last - first), 256)
            if len(hashes) < 4:
                break
            for at in range(0, len(hashes) - 3, 4):
                last += 1
                if hashes[at] & 1:
                    return last
        raise OSError(errno.ENOEXEC, f"{self.library.path}: its hash table has no end")

    def binding(self, name: bytes) -> int:
        """Return how a name that this library defines is bound: 1 global, 2 weak; 0 if it has none.

        By the hash table, as the loader looks it up. A library without one of the GNU kind counts
        as having no definitions.
        """
        table = self.address(DT_GNU_HASH)
        if not table:
            return 0
        buckets, first, blooms, _ = memoryview(self._memory.read(table, 16)).cast("I").tolist()
        if not buckets:
            return 0
        code = 5381
        for sign in name:
            code = (code * 33 + sign) & 0xFFFFFFFF
        place = table + 16 + 8 * blooms
        index = int.from_bytes(self._memory.read(place + 4 * (code % buckets), 4), "little")
        place += 4 * buckets
        symbols, strings = self.address(DT_SYMTAB), self.address(DT_STRTAB)
        for at in range(index, index + _LONGEST_CHAIN if index >= first else 0):
            found = int.from_bytes(self._memory.read(place + 4 * (at - first), 4), "little")
            if found | 1 == code | 1:
                entry = self._memory.read(symbols + at * SYMBOL, SYMBOL)
                start = strings + int.from_bytes(entry[:4], "little")
                if self._memory.text(start, len(name) + 1) == name:
                    return entry[4] >> 4
            if found & 1:
                break
        return 0

    def segments(self) -> tuple[range, list[range]]:
        """Return where the whole library lies, and those parts of its file that can be written.

        The loader writes there; what it protects again afterwards is among them.
        """
        base = self.library.base
        header = self._memory.read(base, 64)
        if header[:6] != b"\x7fELF\x02\x01":
            raise OSError(errno.ENOEXEC, f"{self.library.path}: no ELF header at its base")
        table, size, count = (
            int.from_bytes(header[at : at + n], "little") for at, n in ((32, 8), (54, 2), (56, 2))
        )
        if size != 56:
            raise OSError(errno.ENOEXEC, f"{self.library.path}: unknown program headers")
        data = self._memory.read(base + table, size * count)
        end, writable = 0, []
        for place in range(0, len(data), size):
            words = memoryview(data[place : place + size]).cast("Q").tolist()
            kind, flags = words[0] & 0xFFFFFFFF, words[0] >> 32
            start, in_file, length = words[2], words[4], words[5]
            if kind != _PT_LOAD:
                continue
            if start > _MOST_MAPPED or length > _MOST_MAPPED:
                raise OSError(errno.ENOEXEC, f"{self.library.path}: a segment makes no sense")
            end = max(end, start + length)
            if flags & _PF_W:
                writable.append(range(base + start, base + start + min(in_file, MOST_TEXT)))
        return range(base, base + end), writable


# --- Owners of names in the global symbol scope, read from memory as the loader would find them.
# No ctypes is needed, nothing is loaded or bound by looking, and no lock of the loader is taken.
# What each library of the scope has of the names is remembered.
#
# Source: System V ABI, chapter 5; glibc's ``elf/dl-lookup.c``, for ``dlsym`` with the program's
# handle; ``link.h``.

_ENTRY = 56  # bytes: the public part, the one before, itself, the name space


class Owner(NamedTuple):
    """A library in the global scope.

    Args:
        path: As the loader has it; empty for the program.
        base: What tells it from another one that has come to its place.
        dynamic: As above.
    """

    path: str
    base: int
    dynamic: int

    @property
    def file(self) -> str:
        """The file with links resolved; empty for the program."""
        return os.path.realpath(self.path) if self.path else ""


class GlobalNames:
    """Looks some names up in the global scope.

    Args:
        names: As the linker writes them.
    """

    def __init__(self, names: Sequence[bytes]) -> None:
        self._names = tuple(names)
        # By the words of an entry: a bit for each name that this library has.
        self._has: dict[bytes, tuple[Owner, int]] = {}

    def owners(self, memory: Memory, scope: bytes) -> list[Owner | None]:
        """Return who owns each name, None for one that nobody has.

        Args:
            memory: That of this process.
            scope: The program's search list, as `cudaguard.system.loader_list` has it.

        Raises:
            OSError: An entry cannot be read, as it has been unloaded meanwhile.
        """
        found: list[Owner | None] = [None] * len(self._names)
        left, known = (1 << len(found)) - 1, {}
        for entry in memoryview(scope).cast("Q").tolist():
            words = memory.read(entry, _ENTRY)
            one = known[words] = self._has.get(words) or self._look(memory, words)
            owner, has = one
            has &= left
            left &= ~has
            while has:
                lowest = has & -has
                found[lowest.bit_length() - 1] = owner
                has -= lowest
        self._has = known  # without those that were unloaded
        return found

    def forget(self) -> None:
        """Look at all libraries anew: names of one were hidden."""
        self._has = {}

    def _look(self, memory: Memory, words: bytes) -> tuple[Owner, int]:
        base, text, dynamic = memoryview(words[:24]).cast("Q").tolist()
        owner = Owner(os.fsdecode(memory.text(text)) if text else "", base, dynamic)
        has = 0
        try:
            image = SharedObject(Image(memory, Library(owner.path, base, dynamic)))
            for at, name in enumerate(self._names):
                if image.shows(name):
                    has |= 1 << at
        except ours(UnreadableError):  # the loader finds nothing there either
            pass
        return owner, has
