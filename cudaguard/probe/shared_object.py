"""The symbols of a shared object: what it asks others for, and whether it has a name itself.

One reader for files and for what is mapped already. What counts as a definition is decided as
the dynamic loader decides it.

Source: System V ABI, chapter 5; the symbol versioning chapter of the Linux Standard Base; the GNU
hash table as the GNU linker writes it; ``elf.h``.
"""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Source(Protocol):
        """Where a shared object is read: an open file, or memory."""

        def value(self, tag: int) -> int:
            """Return the number that a tag of its dynamic section gives, 0 if there is none."""

        def address(self, tag: int) -> int:
            """Return the address that a tag gives, to be read with `some`; 0 if there is none."""

        def some(self, address: int, length: int) -> bytes:
            """Return up to `length` bytes at an address."""


DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ, DT_STRSZ = 4, 5, 6, 7, 8, 10
DT_PLTRELSZ, DT_JMPREL, DT_GNU_HASH = 2, 23, 0x6FFFFEF5
DT_VERSYM, DT_VERDEF, DT_VERDEFNUM = 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFD
DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
_SYMBOL, _RELOCATION = 24, 24
_MOST_SYMBOLS = 1 << 20
_MOST_HASHES = 1 << 21
_MOST_RELOCATIONS = 1 << 20
_MOST_TEXT = 1 << 24
_MOST_VERSIONS = 1 << 12
_LONGEST_CHAIN = 1 << 12
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


class UnreadableError(ValueError):
    """The object makes no sense, or not to this reader."""


class SharedObject:
    """The symbol tables of one object.

    Args:
        source: Where it is read.

    Raises:
        OSError: by every method, where it cannot be read.
        UnreadableError: by every method, where its tables make no sense.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._symbols = source.address(DT_SYMTAB)
        self._strings = source.address(DT_STRTAB)
        self._versions = source.address(DT_VERSYM)
        self._gnu: _GnuTable | None = None
        self._old: tuple[memoryview, memoryview] | None = None
        self._defined: dict[int, bytes] | None = None

    # --- what it asks for -------------------------------------------------------------

    def requirements(self) -> list[tuple[int, Requirement]]:
        """Return the versions that it needs of its libraries, each with its index."""
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
        size = self._source.value(DT_STRSZ)
        texts = self._exactly(self._strings, size) if 0 < size <= _MOST_TEXT else b""
        found = []
        for index in indices:
            place = (index - first) * _SYMBOL
            # Neither defined here, nor local, nor weak.
            if table[place + 6] | table[place + 7] or table[place + 4] >> 4 not in (1, _UNIQUE):
                continue
            start = _number(table, place, 4)
            end = texts.find(b"\0", start) if texts else -1
            name = texts[start:end] if end >= 0 else self._text(start)
            if name:
                version = versions.get(kinds[index - first] & 0x7FFF, b"") if kinds else b""
                found.append(Wanted(name, version))
        return found

    def _undefined_range(self) -> range | list[int]:
        """Return the indices among which the undefined symbols are."""
        if self._source.address(DT_GNU_HASH):
            table = self._gnu_table()
            if any(table.buckets):
                return range(1, table.first)  # the hash table is about the rest
            return self._relocated()  # it defines nothing, and then the table tells no number
        if self._source.address(DT_HASH):
            return range(1, len(self._old_table()[1]))
        raise UnreadableError("it has symbols, and no hash table of a kind that is known")

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

    def versions(self) -> dict[int, bytes]:
        """Return the versions that it defines, by index; empty if it knows no versions."""
        if self._defined is None:
            found: dict[int, bytes] = {}
            place = self._source.address(DT_VERDEF)
            for _ in range(min(self._source.value(DT_VERDEFNUM), _MOST_VERSIONS)):
                entry = self._exactly(place, 20)
                if not _number(entry, 2, 2) & _IS_BASE:  # that one is the library's own name
                    name = self._exactly(place + _number(entry, 12, 4), 4)
                    found[_number(entry, 4, 2) & 0x7FFF] = self._text(_number(name, 0, 4))
                place += _number(entry, 16, 4)
            self._defined = found
        return self._defined

    @property
    def has_versions(self) -> bool:
        """Does it define versions at all? The loader lets pass what does not."""
        return bool(self._source.address(DT_VERDEF))

    def defines(self, wanted: Wanted) -> bool:
        """Would the loader take this object's definition of a symbol, if it came here?"""
        if not self._symbols:
            return False
        if self._source.address(DT_GNU_HASH):
            indices = self._gnu_table().candidates(wanted.name)
        elif self._source.address(DT_HASH):
            indices = self._old_candidates(wanted.name)
        else:
            return False
        return any(self._fits(index, wanted) for index in indices)

    def _fits(self, index: int, wanted: Wanted) -> bool:
        entry = self._exactly(self._symbols + index * _SYMBOL, _SYMBOL)
        kind, binding, visibility = entry[4] & 15, entry[4] >> 4, entry[5] & 3
        section, value = _number(entry, 6, 2), _number(entry, 8, 8)
        if (
            not section
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
        own = self.versions().get(number, b"")
        return own == wanted.version or (not own and not is_hidden)

    # --- hash tables ------------------------------------------------------------------

    def _gnu_table(self) -> _GnuTable:
        if self._gnu is None:
            self._gnu = _GnuTable(self, self._source.address(DT_GNU_HASH))
        return self._gnu

    def _old_table(self) -> tuple[memoryview, memoryview]:
        """Return the buckets and chains of the older kind of hash table."""
        if self._old is None:
            table = self._source.address(DT_HASH)
            head = self._exactly(table, 8)
            count, symbols = _number(head, 0, 4), _number(head, 4, 4)
            if max(count, symbols) > _MOST_HASHES:
                raise UnreadableError("its hash table makes no sense")
            words = memoryview(self._exactly(table + 8, 4 * (count + symbols))).cast("I")
            self._old = words[:count], words[count:]
        return self._old

    def _old_candidates(self, name: bytes) -> list[int]:
        buckets, chains = self._old_table()
        code = 0
        for sign in name:
            code = (code << 4) + sign
            upper = code & 0xF0000000
            code = (code ^ (upper >> 24)) & ~upper & 0xFFFFFFFF
        found: list[int] = []
        index = buckets[code % len(buckets)] if buckets else 0
        while index:
            if index >= len(chains) or len(found) > _LONGEST_CHAIN:
                raise UnreadableError("its hash table has no end")
            found.append(index)
            index = chains[index]
        return found

    # --- bytes ------------------------------------------------------------------------

    def _exactly(self, address: int, length: int) -> bytes:
        data = self._source.some(address, length) if length else b""
        if len(data) != length:
            raise UnreadableError("its tables point outside of it")
        return data

    def _text(self, start: int, limit: int = _LONGEST_NAME) -> bytes:
        place = self._strings + start
        data = self._source.some(place, min(limit, 256))
        if b"\0" not in data and limit > 256:
            data = self._source.some(place, limit)
        return data.partition(b"\0")[0]


class _GnuTable:
    """The GNU hash table of an object: symbols from `first` on, by the hashes of their names."""

    def __init__(self, owner: SharedObject, table: int) -> None:
        read = self._read = owner._exactly
        head = memoryview(read(table, 16)).cast("I")
        count, self.first, blooms, self._shift = head
        if max(count, blooms) > _MOST_HASHES or self.first > _MOST_HASHES:
            raise UnreadableError("its hash table makes no sense")
        self._blooms = memoryview(read(table + 16, 8 * blooms)).cast("Q")
        self.buckets = memoryview(read(table + 16 + 8 * blooms, 4 * count)).cast("I")
        self._chains = table + 16 + 8 * blooms + 4 * count

    def candidates(self, name: bytes) -> list[int]:
        """Return the indices of the symbols whose names have the hash of this one."""
        blooms, buckets = self._blooms, self.buckets
        if not blooms or not buckets:
            return []
        code = gnu_hash(name)
        mask = 1 << (code % 64) | 1 << ((code >> (self._shift % 32)) % 64)
        if blooms[code // 64 % len(blooms)] & mask != mask:
            return []
        index, found = buckets[code % len(buckets)], []
        if index < self.first:
            return []
        for at in range(index - self.first, index - self.first + _LONGEST_CHAIN):
            other = _number(self._read(self._chains + 4 * at, 4), 0, 4)
            if other | 1 == code | 1:
                found.append(self.first + at)
            if other & 1:
                return found
        raise UnreadableError("its hash table has no end")


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


def _number(data: bytes, place: int, length: int) -> int:
    return int.from_bytes(data[place : place + length], "little")
