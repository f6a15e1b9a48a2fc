"""The symbols of a shared object: what it asks others for, and whether it has a name itself.

One reader for files and for what is mapped already. What counts as a definition is decided as
the dynamic loader decides it.

Source: System V ABI, chapter 5; the symbol versioning chapter of the Linux Standard Base; the GNU
hash table as the GNU linker writes it; ``elf.h``.
"""

from __future__ import annotations

from typing import NamedTuple

from cudaguard.elf.reader import STEP, Budget, UnreadableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from cudaguard.elf.reader import Budget

    # Given an address and a length: that many bytes, or an error.
    Read = Callable[[int, int], bytes]

    class Tables(Protocol):
        """Where a shared object is read: an open file, or memory."""

        budget: Budget

        def value(self, tag: int) -> int:
            """Return the number that a tag of its dynamic section gives, 0 if there is none."""

        def address(self, tag: int) -> int:
            """Return the address that a tag gives, to be read with `some`; 0 if there is none."""

        def some(self, address: int, length: int) -> bytes:
            """Return up to `length` bytes at an address."""

# --- The hash tables by which the dynamic loader finds a name in a shared object ------------------
# Source: System V ABI, chapter 5; the GNU hash table as the GNU linker writes it.

_MOST_HASHES = 1 << 21
_LONGEST_CHAIN = 1 << 12
_COMMON_CHAIN = 64  # entries that are read at once, at most


class GnuTable:
    """The newer kind: about the definitions only, which stand last among the symbols.

    Attributes:
        first: Index of the first symbol that the table is about.
        defines_anything: True if there is any.
    """

    def __init__(self, read: Read, table: int, budget: Budget) -> None:
        self._budget = budget
        count, self.first, blooms, self._shift = memoryview(read(table, 16)).cast("I")
        if max(count, blooms, self.first) > _MOST_HASHES:
            raise UnreadableError("its hash table makes no sense")
        self._read = read
        self._blooms = memoryview(read(table + 16, 8 * blooms)).cast("Q")
        self._buckets = memoryview(read(table + 16 + 8 * blooms, 4 * count)).cast("I")
        self._chains = table + 16 + 8 * blooms + 4 * count
        self.defines_anything = any(self._buckets)

    def candidates(self, name: bytes) -> list[int]:
        """Return the indices of the symbols whose names have the hash of this one."""
        blooms, buckets = self._blooms, self._buckets
        if not blooms or not buckets:
            return []
        code = gnu_hash(name)
        mask = 1 << (code % 64) | 1 << ((code >> (self._shift % 32)) % 64)
        if blooms[code // 64 % len(blooms)] & mask != mask:
            return []
        bucket, found = code % len(buckets), []
        index = buckets[bucket]
        if index < self.first:
            return []
        # Linkers write the chains in the order of the buckets: the next one tells how long this is.
        following = buckets[bucket + 1] if bucket + 1 < len(buckets) else 0
        count = following - index if index < following <= index + _COMMON_CHAIN else 1
        at, end = index - self.first, index - self.first + _LONGEST_CHAIN
        while at < end:
            self._budget.spend(STEP * count)
            for other in memoryview(self._read(self._chains + 4 * at, 4 * count)).cast("I"):
                if other | 1 == code | 1:
                    found.append(self.first + at)
                if other & 1:
                    return found
                at += 1
            count = 1
        raise UnreadableError("its hash table has no end")


class OldTable:
    """The older kind: about all symbols.

    Attributes:
        symbols: How many symbols there are.
    """

    def __init__(self, read: Read, table: int, budget: Budget) -> None:
        self._budget = budget
        count, self.symbols = memoryview(read(table, 8)).cast("I")
        if max(count, self.symbols) > _MOST_HASHES:
            raise UnreadableError("its hash table makes no sense")
        words = memoryview(read(table + 8, 4 * (count + self.symbols))).cast("I")
        self._buckets, self._chains = words[:count], words[count:]

    def candidates(self, name: bytes) -> list[int]:
        """Return the indices of the symbols whose names have the hash of this one, and others."""
        found: list[int] = []
        index = self._buckets[old_hash(name) % len(self._buckets)] if self._buckets else 0
        while index:
            if index >= self.symbols or len(found) > _LONGEST_CHAIN:
                raise UnreadableError("its hash table has no end")
            self._budget.spend(STEP)
            found.append(index)
            index = self._chains[index]
        return found


def old_hash(name: bytes) -> int:
    """Return the hash of a name in the older kind of table, and among versions."""
    code = 0
    for sign in name:
        code = (code << 4) + sign
        upper = code & 0xF0000000
        code = (code ^ (upper >> 24)) & ~upper & 0xFFFFFFFF
    return code


_hashes: dict[bytes, int] = {}


def gnu_hash(name: bytes) -> int:
    """Return the hash by which a name stands in the table."""
    code = _hashes.get(name)
    if code is None:
        code = 5381
        for sign in name:
            code = (code * 33 + sign) & 0xFFFFFFFF
        if len(_hashes) > 1 << 14:
            _hashes.clear()
        _hashes[name] = code
    return code


DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ, DT_STRSZ = 4, 5, 6, 7, 8, 10
DT_PLTRELSZ, DT_JMPREL, DT_GNU_HASH = 2, 23, 0x6FFFFEF5
DT_VERSYM, DT_VERDEF, DT_VERDEFNUM = 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFD
DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
_SYMBOL, _RELOCATION = 24, 24
_MOST_SYMBOLS = 1 << 20
_MOST_RELOCATIONS = 1 << 20
_MOST_TEXT = 1 << 24
_MOST_VERSIONS = 1 << 12
_VERSION_PART = 64  # bytes to read for each version: the entry, its name, the names it follows
_LONGEST_NAME = 1 << 14  # a C++ name of 10,000 characters has been seen
_GLOBAL, _WEAK, _UNIQUE = 1, 2, 10
_KINDS = (0, 1, 2, 5, 6, 10)  # NOTYPE, OBJECT, FUNC, COMMON, TLS, GNU_IFUNC
_TLS, _ABSOLUTE = 6, 0xFFF1
_INTERNAL, _HIDDEN = 1, 2
_IS_BASE, _IS_WEAK = 1, 2


class Wanted(NamedTuple):
    """A symbol that an object asks others for; without a version, that is empty."""

    name: bytes
    version: bytes


class Requirement(NamedTuple):
    """A version that an object asks of a library."""

    library: bytes
    version: bytes
    is_weak: bool


class SharedObject:
    """The symbol tables of one object.

    Args:
        source: Where it is read.

    Raises:
        OSError: by every method, where it cannot be read.
        UnreadableError: by every method, where its tables make no sense.
    """

    def __init__(self, source: Tables) -> None:
        self._source = source
        self._symbols = source.address(DT_SYMTAB)
        self._strings = source.address(DT_STRTAB)
        self._versions = source.address(DT_VERSYM)
        self._hashes: GnuTable | OldTable | None = None
        self._defined: dict[int, tuple[int, int]] | None = None
        self._required: list[tuple[int, Requirement]] | None = None
        self._texts = b""

    # --- what it asks for -------------------------------------------------------------

    def requirements(self) -> list[tuple[int, Requirement]]:
        """Return the versions that it needs of its libraries, each with its index."""
        if self._required is None:
            self._read_texts()
            self._required = self._requirements()
        return self._required

    def _requirements(self) -> list[tuple[int, Requirement]]:
        found: list[tuple[int, Requirement]] = []
        place = self._source.address(DT_VERNEED)
        for _ in range(min(self._source.value(DT_VERNEEDNUM), _MOST_VERSIONS)):
            entry = self._exactly(place, 16)
            library = self._text(_number(entry, 4, 4))
            part = place + _number(entry, 8, 4)
            for _ in range(_number(entry, 2, 2)):
                if len(found) > _MOST_VERSIONS:
                    raise UnreadableError("it needs more versions than there are")
                aux = self._exactly(part, 16)
                is_weak = bool(_number(aux, 4, 2) & _IS_WEAK)
                version = self._text(_number(aux, 8, 4))
                index = _number(aux, 6, 2) & 0x7FFF
                found.append((index, Requirement(library, version, is_weak)))
                part += _number(aux, 12, 4)
            place += _number(entry, 12, 4)
        return found

    def wanted(self) -> list[Wanted]:
        """Return the symbols that somebody else must have, weak ones left out."""
        if not self._symbols:
            return []
        indices = self._undefined_range()
        if not indices:
            return []
        first, last = min(indices), max(indices)
        if last > _MOST_SYMBOLS:
            raise UnreadableError("it has more symbols than there are")
        table = self._exactly(self._symbols + first * _SYMBOL, (last + 1 - first) * _SYMBOL)
        versions = {index: need.version for index, need in self.requirements()}
        kinds = self._indices(first, last)
        found = []
        for index in indices:
            place = (index - first) * _SYMBOL
            # Neither defined here, nor local, nor weak.
            if table[place + 6] | table[place + 7] or table[place + 4] >> 4 not in (1, _UNIQUE):
                continue
            name = self._text(_number(table, place, 4))
            if name:
                version = versions.get(kinds[index - first] & 0x7FFF, b"") if kinds else b""
                found.append(Wanted(name, version))
        return found

    def _undefined_range(self) -> range | list[int]:
        """Return the indices among which the undefined symbols are."""
        table = self._table()
        if isinstance(table, OldTable):
            return range(1, table.symbols)
        if table is not None and table.defines_anything:
            return range(1, table.first)  # the hash table is about the rest
        return self._relocated()  # then nothing tells how many there are

    def _relocated(self) -> list[int]:
        """Return the indices of the symbols that the loader will look up."""
        found: set[int] = set()
        for start, size in ((DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)):
            length = self._source.value(size)
            if length > _MOST_RELOCATIONS * _RELOCATION:
                raise UnreadableError("it has more relocations than there are")
            data = self._exactly(self._source.address(start), length // 24 * 24) if length else b""
            found.update(memoryview(data).cast("I")[3::6].tolist())
        found.discard(0)
        return sorted(found)

    def _indices(self, first: int, last: int) -> memoryview | None:
        """Return the version index of each symbol, None for an object without versions."""
        if not self._versions:
            return None
        return memoryview(self._exactly(self._versions + 2 * first, 2 * (last + 1 - first))).cast(
            "H"
        )

    # --- what it has ------------------------------------------------------------------

    def _versions_by_index(self) -> dict[int, tuple[int, int]]:
        """Return the versions that it defines: index -> (hash of the name, where that stands)."""
        if self._defined is None:
            found: dict[int, tuple[int, int]] = {}
            count = min(self._source.value(DT_VERDEFNUM), _MOST_VERSIONS)
            data = self._source.some(self._source.address(DT_VERDEF), count * _VERSION_PART)
            place = 0
            for _ in range(count):
                aux = place + _number(data, place + 12, 4)
                if len(data) < max(place + 20, aux + 4):
                    raise UnreadableError("its versions point outside of it")
                if not _number(data, place + 2, 2) & _IS_BASE:  # that is the library's own name
                    index = _number(data, place + 4, 2) & 0x7FFF
                    found[index] = _number(data, place + 8, 4), _number(data, aux, 4)
                place += _number(data, place + 16, 4)
            self._defined = found
        return self._defined

    def lacks_version(self, name: bytes) -> bool:
        """Return True if the loader would refuse an object that needs this version of the library.

        A library that defines no versions at all is let pass.
        """
        if not self._source.address(DT_VERDEF):
            return False
        code = old_hash(name)
        return not any(
            other == code and self._text(start) == name
            for other, start in self._versions_by_index().values()
        )

    def defines(self, wanted: Wanted) -> bool:
        """Return True if the loader would take this object's definition of a symbol."""
        table = self._table() if self._symbols else None
        if table is None:
            return False
        return any(self._fits(index, wanted) for index in table.candidates(wanted.name))

    def shows(self, name: bytes) -> bool:
        """Return True if ``dlsym`` finds a name here: by its default version, or the only one.

        A program that takes the address of a function of others has a place that stands for it.
        """
        table = self._table() if self._symbols else None
        if table is None:
            return False
        wanted = Wanted(name, b"")
        found = [i for i in table.candidates(name) if self._fits(i, wanted, stands_for=True)]
        if not found or not self._versions:
            return bool(found)
        marks = [_number(self._exactly(self._versions + 2 * i, 2), 0, 2) for i in found]
        # Older ones are for those that were linked with them.
        return any(mark & 0x7FFF < 2 or not mark & 0x8000 for mark in marks)

    def _fits(self, index: int, wanted: Wanted, *, stands_for: bool = False) -> bool:
        entry = self._exactly(self._symbols + index * _SYMBOL, _SYMBOL)
        kind, binding, visibility = entry[4] & 15, entry[4] >> 4, entry[5] & 3
        section, value = _number(entry, 6, 2), _number(entry, 8, 8)
        if (
            (not section and not stands_for)
            or (not value and section != _ABSOLUTE and kind != _TLS)
            or kind not in _KINDS
            or binding not in (_GLOBAL, _WEAK, _UNIQUE)
            or visibility in (_INTERNAL, _HIDDEN)
            or self._text(_number(entry, 0, 4), len(wanted.name) + 1) != wanted.name
        ):
            return False
        if not self._versions:
            return True
        mark = _number(self._exactly(self._versions + 2 * index, 2), 0, 2)
        is_hidden, number = bool(mark & 0x8000), mark & 0x7FFF
        if not wanted.version:
            return number < 3 or not is_hidden  # the oldest version, or the default one
        known = self._versions_by_index().get(number)
        own = self._text(known[1]) if known else b""
        return own == wanted.version or (not own and not is_hidden)

    def _table(self) -> GnuTable | OldTable | None:
        """Return its hash table, the newer kind if it has both; None if it has neither."""
        if self._hashes is None:
            gnu, old = self._source.address(DT_GNU_HASH), self._source.address(DT_HASH)
            if gnu:
                self._hashes = GnuTable(self._exactly, gnu, self._source.budget)
            elif old:
                self._hashes = OldTable(self._exactly, old, self._source.budget)
        return self._hashes

    # --- bytes ------------------------------------------------------------------------

    def _exactly(self, address: int, length: int) -> bytes:
        data = self._source.some(address, length) if length else b""
        if len(data) != length:
            raise UnreadableError("its tables point outside of it")
        return data

    def _read_texts(self) -> None:
        """Read all names at once; worth it for an object of which many are asked."""
        size = self._source.value(DT_STRSZ)
        if not self._texts and 0 < size <= _MOST_TEXT:
            self._texts = self._exactly(self._strings, size)

    def _text(self, start: int, limit: int = _LONGEST_NAME) -> bytes:
        if self._texts:
            end = self._texts.find(b"\0", start, start + limit)
            if end >= 0:
                self._source.budget.spend(STEP + end - start)
                return self._texts[start:end]
        place = self._strings + start
        data = self._source.some(place, min(limit, 256))
        if b"\0" not in data and limit > 256:
            data = self._source.some(place, limit)
        return data.partition(b"\0")[0]


def _number(data: bytes, place: int, length: int) -> int:
    return int.from_bytes(data[place : place + length], "little")
