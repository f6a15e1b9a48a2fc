"""The symbols of a shared object: what it asks others for, and whether it has a name itself.

One reader for files and for what is mapped already. What counts as a definition is decided as
the dynamic loader decides it.

Source: System V ABI, chapter 5; ``elf.h``; the symbol versioning chapter of the Linux Standard
Base.
"""

from __future__ import annotations

from itertools import repeat

from cudaguard.elf.reader import (
    DT_GNU_HASH,
    DT_HASH,
    DT_STRSZ,
    DT_STRTAB,
    DT_SYMTAB,
    STEP,
    SYMBOL,
    ElfObject,
    GnuTable,
    OldTable,
    UnreadableError,
    gnu_hash,
    number,
    old_hash,
    words,
)
from cudaguard.model import TYPE_CHECKING, NamedTuple, lazy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, KeysView

_DT_PLTRELSZ, _DT_RELA, _DT_RELASZ, _DT_JMPREL = 2, 7, 8, 23
_RELOCATION = 24  # bytes of an entry: where, which symbol and how, what is added
_DT_VERSYM, _DT_VERDEF, _DT_VERDEFNUM = 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFD
_DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
_MOST_WANTED = 1 << 20
_MOST_TEXT = _MOST_BYTES = 1 << 24
_DT_SYMBOLIC, _DT_FLAGS, _DT_RELACOUNT = 16, 30, 0x6FFFFFF9
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
    version: bytes = b""
    is_tls: bool = False  # a thread-local variable


class Requirement(NamedTuple):
    """A version that an object asks of a library; its symbols have the mark."""

    mark: int
    library: bytes
    version: bytes
    is_weak: bool


class SharedObject:
    """The symbols of one object.

    Raises:
        OSError: by every method, where it cannot be read or its tables make no sense.
    """

    def __init__(self, source: ElfObject) -> None:
        self.source = source
        self._symbols = source.address(DT_SYMTAB)
        self._strings = source.address(DT_STRTAB)
        self._versions = source.address(_DT_VERSYM)
        self._texts = b""

    def names(self) -> list[bytes]:
        """Return the names of all its symbols, in their order."""
        count = self._table.end() if self._table else 0
        entries = self.source.exactly(self._symbols, count * SYMBOL)
        return self._texts_at(memoryview(entries).cast("I")[::6].tolist())

    # --- what it asks for -------------------------------------------------------------

    @lazy
    def requirements(self) -> list[Requirement]:
        """The versions that it needs of its libraries."""
        exactly = self.source.exactly
        found: list[Requirement] = []
        place = self.source.address(_DT_VERNEED)
        for _ in range(min(self.source.value(_DT_VERNEEDNUM), _MOST_VERSIONS)):
            entry = exactly(place, 16)
            library = self._text(number(entry, 4, 4))
            part = place + number(entry, 8, 4)
            for _ in range(number(entry, 2, 2)):
                if len(found) > _MOST_VERSIONS:
                    raise UnreadableError("it needs more versions than there are")
                aux = exactly(part, 16)
                mark, is_weak = number(aux, 6, 2) & 0x7FFF, bool(number(aux, 4, 2) & _IS_WEAK)
                version = self._text(number(aux, 8, 4))
                found.append(Requirement(mark, library, version, is_weak))
                part += number(aux, 12, 4)
            place += number(entry, 12, 4)
        return found

    def wanted(self) -> list[Wanted]:
        """Return the symbols that somebody else must have, weak ones left out."""
        table = self._asking()
        n = len(table) // SYMBOL * 2
        marks = memoryview(self.source.exactly(self._versions, n) if self._versions else bytes(n))
        rows = zip(table.cast("I")[::6], table[4::24], table.cast("H")[3::12], marks.cast("H"))
        asked = [
            (start, info & 15 == _TLS, mark & 0x7FFF)
            for start, info, section, mark in rows
            if not section and info >> 4 in (_GLOBAL, _UNIQUE)
        ]
        names = self._texts_at([start for start, *_ in asked])
        versions = {need.mark: need.version for need in self.requirements}
        return [
            Wanted(name, versions.get(mark, b""), is_tls)
            for name, (_, is_tls, mark) in zip(names, asked)
            if name
        ]

    def _asking(self) -> memoryview:
        """Return the part of its table where all symbols are that somebody else must have."""
        table = self._table
        # The newer kind of table is about the definitions only, which come last.
        count = table.first if isinstance(table, GnuTable) else table.end() if table else 0
        if count > _MOST_WANTED:
            raise UnreadableError("it has more symbols than there are")
        return memoryview(self.source.exactly(self._symbols, count * SYMBOL))

    @lazy
    def references_to_itself(self) -> frozenset[int]:
        """The symbols it has and still has the loader look up, as others may replace them.

        It does so unless it was linked with ``-Bsymbolic``.
        """
        flags = self.source.value(_DT_FLAGS)
        if not self._symbols or _DT_SYMBOLIC in self.source.tags or flags & 2:
            return frozenset()
        return frozenset(info >> 32 for info, _ in self.relocations())

    def words_of(self, indices: set[int]) -> list[int]:
        """Return the addresses that the loader has found for symbols, of a mapped object."""
        base, read = self.source.base, self.source.exactly
        places = [place for info, place in self.relocations() if info >> 32 in indices]
        return [number(read(base + place, 8), 0, 8) for place in places]

    def relocations(self) -> Iterator[tuple[int, int]]:
        """Yield what is relocated, a symbol above its kind, and the place where that belongs."""
        value, address = self.source.value, self.source.address
        relative = value(_DT_RELACOUNT) * _RELOCATION  # these come first, and name no symbols
        for start, size in (
            (address(_DT_RELA) + relative, value(_DT_RELASZ) - relative),
            (address(_DT_JMPREL), value(_DT_PLTRELSZ)),
        ):
            data = self.source.some(start, min(size, _MOST_BYTES)) if size > 0 else b""
            numbers = words(data, _RELOCATION)
            yield from zip(numbers[1::3], numbers[::3])

    # --- what it has ------------------------------------------------------------------

    def is_met(self, codes: Iterable[KeysView[int]]) -> bool:
        """Return True if it has, or asks for, a name with one of some hashes, as of `codes`."""
        if not all(theirs.isdisjoint(self._codes) for theirs in codes):
            return True
        # Weak ones too: to look at the kind of each takes longer than a few that are too many.
        names = self._texts_at(self._asking().cast("I")[::6].tolist())
        asked = [gnu_hash(name) | 1 for name in names]
        return not all(theirs.isdisjoint(asked) for theirs in codes)

    def codes(self) -> KeysView[int]:
        """Return the hashes of the names it defines, their lowest bits set."""
        # In a set the garbage collector would look at each of them (TensorFlow has 470,000).
        return dict.fromkeys(self._codes, True).keys()

    def named(self, codes: KeysView[int] | set[int]) -> list[tuple[int, bytes, bool]]:
        """Return index, name, and if it is not weak, of what it defines under such hashes."""
        if codes.isdisjoint(self._codes):
            return []
        first = self._table.first if isinstance(self._table, GnuTable) else 1
        indices = [index for index, code in enumerate(self._codes, first) if code in codes]
        table = self.source.some(self._symbols, SYMBOL * (max(indices, default=0) + 1))
        places = [
            at
            for at in (SYMBOL * index for index in indices)
            if at + SYMBOL <= len(table)
            if table[at + 6] | table[at + 7]
            and table[at + 4] >> 4 in (_GLOBAL, _WEAK)
            and not table[at + 5] & 3
        ]
        names = self._texts_at([number(table, at, 4) for at in places])
        return [
            (at // SYMBOL, name, table[at + 4] >> 4 == _GLOBAL) for at, name in zip(places, names)
        ]

    @lazy
    def _codes(self) -> list[int]:
        """The hash of each symbol that may be defined, its lowest bit set."""
        if isinstance(self._table, GnuTable):
            return self._table.codes()
        return [gnu_hash(name) | 1 for name in self.names()[1:]]

    @lazy
    def _versions_by_index(self) -> dict[int, tuple[int, int]]:
        """The versions that it defines: index -> (hash of the name, where that stands)."""
        found: dict[int, tuple[int, int]] = {}
        count = min(self.source.value(_DT_VERDEFNUM), _MOST_VERSIONS)
        data = self.source.some(self.source.address(_DT_VERDEF), count * _VERSION_PART)
        place = 0
        for _ in range(count):
            aux = place + number(data, place + 12, 4)
            if len(data) < max(place + 20, aux + 4):
                raise UnreadableError("its versions point outside of it")
            if not number(data, place + 2, 2) & _IS_BASE:  # that is the library's own name
                index = number(data, place + 4, 2) & 0x7FFF
                found[index] = number(data, place + 8, 4), number(data, aux, 4)
            place += number(data, place + 16, 4)
        return found

    def versions(self) -> frozenset[int]:
        """Return the hashes of the versions that it defines."""
        return frozenset(code for code, _ in self._versions_by_index.values())

    def lacks_version(self, name: bytes) -> bool:
        """Return True if the loader would refuse an object that needs this version of the library.

        A library that defines no versions at all is let pass.
        """
        if not self.source.address(_DT_VERDEF):
            return False
        code = old_hash(name)
        return not any(
            other == code and self._text(start) == name
            for other, start in self._versions_by_index.values()
        )

    def defines(self, wanted: Wanted) -> bool:
        """Return True if the loader would take this object's definition of a symbol."""
        indices = self._candidates(wanted.name)
        return bool(indices) and any(self._fits(index, wanted) for index in indices)

    def taken_from(self, other: SharedObject) -> str:
        """Return a name that it looks up and would find in another object, if asked first."""
        own = self.references_to_itself
        names = [n for i, n, _ in self.named(self.codes() & other.codes()) if i in own]
        names += [one.name for one in self.wanted() if other.defines(one)]
        return names[0].decode("utf-8", "replace") if names else ""

    def has_global(self, name: bytes) -> bool:
        """Return True if it defines a name, and not only weakly."""
        return any(
            self._fits(index, Wanted(name)) and self._entry(index)[4] >> 4 == _GLOBAL
            for index in self._candidates(name)
        )

    def _candidates(self, name: bytes) -> list[int]:
        return self._table.candidates(name) if self._table else []

    def _fits(self, index: int, wanted: Wanted) -> bool:
        entry = self._entry(index)
        kind, binding, visibility = entry[4] & 15, entry[4] >> 4, entry[5] & 3
        section, value = number(entry, 6, 2), number(entry, 8, 8)
        if (
            not section
            or (not value and section != _ABSOLUTE and kind != _TLS)
            or kind not in _KINDS
            or binding not in (_GLOBAL, _WEAK, _UNIQUE)
            or visibility in (_INTERNAL, _HIDDEN)
            or self._text(number(entry, 0, 4), len(wanted.name) + 1) != wanted.name
        ):
            return False
        if not self._versions:
            return True
        mark = number(self.source.exactly(self._versions + 2 * index, 2), 0, 2)
        is_hidden, version = bool(mark & 0x8000), mark & 0x7FFF
        if not wanted.version:
            return version < 3 or not is_hidden  # the oldest version, or the default one
        known = self._versions_by_index.get(version)
        own = self._text(known[1]) if known else b""
        return own == wanted.version or (not own and not is_hidden)

    def _entry(self, index: int) -> bytes:
        return self.source.exactly(self._symbols + index * SYMBOL, SYMBOL)

    @lazy
    def _table(self) -> GnuTable | OldTable | None:
        """Its hash table, the newer kind if it has both; None if it has neither."""
        read, budget = self.source.exactly, self.source.budget
        gnu, old = self.source.address(DT_GNU_HASH), self.source.address(DT_HASH)
        if self._symbols and gnu:
            return GnuTable(read, gnu, budget)
        return OldTable(read, old, budget) if self._symbols and old else None

    def _texts_at(self, starts: list[int]) -> list[bytes]:
        """Return the names that stand at some places."""
        size = 0 if self._texts else self.source.value(DT_STRSZ)
        if starts and 0 < size <= _MOST_TEXT:  # all at once: of such an object many are asked
            self._texts = self.source.exactly(self._strings, size)
        self.source.budget.spend(STEP * len(starts))
        texts = self._texts
        ends = [*map(texts.find, repeat(b"\0"), starts, map(_LONGEST_NAME.__add__, starts))]
        if min(ends, default=0) < 0:  # too much to be read at once, or a long name
            return [self._text(start) for start in starts]
        self.source.budget.spend(sum(ends) - sum(starts))
        return [texts[start:end] for start, end in zip(starts, ends)]

    def _text(self, start: int, limit: int = _LONGEST_NAME) -> bytes:
        place = self._strings + start
        data = self.source.some(place, min(limit, 256))
        if b"\0" not in data and limit > 256:
            data = self.source.some(place, limit)
        return data.partition(b"\0")[0]
