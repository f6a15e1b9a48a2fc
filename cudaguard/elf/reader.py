"""What an ELF file says of itself, read from the file alone: nothing is loaded.

Source: the ELF specification (System V ABI, chapters 4 and 5), ``elf(5)``; the GNU hash table as
the GNU linker writes it.
"""

from __future__ import annotations

from cudaguard.files import open_to_read, os, own_errors
from cudaguard.model import TYPE_CHECKING, Record, lazy

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    # Given an address and a length: that many bytes, or an error.
    Read = Callable[[int, int], bytes]

PT_LOAD, PT_DYNAMIC, PT_GNU_STACK = 1, 2, 0x6474E551
_DT_NULL, DT_NEEDED = 0, 1
DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_HASH, DT_GNU_HASH = 5, 6, 10, 4, 0x6FFFFEF5
DT_SONAME, DT_RPATH, DT_RUNPATH = 14, 15, 29
SYMBOL = 24  # bytes of an entry of the symbol table
SYMBOL_KIND = 4  # where in it binding and type are
UNIQUE_OBJECT = 0xA1  # STB_GNU_UNIQUE and STT_OBJECT
CXX_RUNTIME = "libstdc++.so.6"
_END_OF_ID = b"2idE\0"
_SEGMENT, _SECTION = 56, 64  # bytes of an entry of the tables of these
_NO_BITS, _MOST_TEXT = 8, 1 << 20  # type of a section without data; bytes of all their names
# The dynamic section of a large library takes a few kilobytes, a soname a few dozen bytes.
_DYNAMIC_LIMIT = 1 << 16
_NAME_LIMIT = 1 << 10
# Of most extensions, what is looked at lies here, but for the dynamic section: one system call.
_START = 1 << 14
# What a question about a file, or about a load, may cost: bytes that are read, and what stands for
# the rest. libtorch_python.so of torch 2.13 with all that it needs takes 6 % of it.
BUDGET = 1 << 28
STEP, LOOKUP = 1 << 8, 1 << 12  # a step along a hash chain, or a name; a look for a file
_MOST_SYMBOLS = 1 << 22
_LONGEST_CHAIN = 1 << 12
_COMMON_CHAIN = 64  # entries that are read at once, at most


class UnreadableError(OSError):
    """The object makes no sense, or not to this reader."""


class Budget:
    """The work, in bytes read, that a question may take; a damaged file asks for more."""

    __slots__ = ("left",)

    def __init__(self, left: float = BUDGET) -> None:
        self.left = left  # see `STEP` and `LOOKUP`

    def spend(self, work: int) -> None:
        """Take note of some work; raise UnreadableError if that is more than was left."""
        self.left -= work
        if self.left < 0:
            raise UnreadableError("it takes more work than any real library: it is damaged")


# Not `struct`, whose first import maps a library of its own into the process.


def words(data: bytes, size: int = 8) -> list[int]:
    """Return the 64-bit words of a table, without an entry that is not whole."""
    return memoryview(data[: len(data) // size * size]).cast("Q").tolist()


def number(data: bytes, place: int, length: int) -> int:
    """Return the number that stands at a place."""
    return int.from_bytes(data[place : place + length], "little")


def program_headers(header: bytes) -> tuple[int, int]:
    """Return where in a file its table of segments is, and its bytes; zeros if it is no ELF file.

    The first 64 bytes tell; only 64-bit little-endian files count.
    """
    if len(header) < 64 or header[:6] != b"\x7fELF\x02\x01" or number(header, 54, 2) != _SEGMENT:
        return 0, 0
    return number(header, 32, 8), _SEGMENT * number(header, 56, 2)


def segments_of(table: bytes) -> list[tuple[int, int, int, int, int, int]]:
    """Return the segments: kind, flags, offset, address, size in the file, size in memory."""
    rows = words(table, _SEGMENT)
    return [
        (kind & 0xFFFFFFFF, kind >> 32, offset, address, size, length)
        for kind, offset, address, size, length in zip(
            rows[::7], rows[1::7], rows[2::7], rows[4::7], rows[5::7]
        )
    ]


class ElfObject:
    """The dynamic section of an ELF object, of a file or of what is mapped.

    Attributes:
        base: What is added to the addresses that stand in the file.
        budget: The work that may be done for it.
        tags: Tag -> number, without DT_NEEDED.

    Raises:
        OSError: by every method, where it cannot be read or makes no sense.
    """

    base = 0

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.tags: dict[int, int] = {}
        self._starts: list[int] = []  # of the names of needed libraries
        self._texts = (0, b"")  # some of the names, from a place on

    def some(self, address: int, length: int) -> bytes:
        """Return up to `length` bytes at an address; fewer where there are no more."""
        raise NotImplementedError

    def exactly(self, address: int, length: int) -> bytes:
        """Return `length` bytes at an address."""
        data = self.some(address, length) if length else b""
        if len(data) != length:
            raise UnreadableError("its tables point outside of it")
        return data

    def _take(self, section: bytes) -> bool:
        """Take a part of the dynamic section; return True if its end is there."""
        entries = words(section, 16)
        tags, values = entries[::2], entries[1::2]
        if is_whole := _DT_NULL in tags:
            tags = tags[: tags.index(_DT_NULL)]
        self.tags.update(zip(tags, values))
        if self.tags.pop(DT_NEEDED, None) is not None:
            self._starts += [value for tag, value in zip(tags, values) if tag == DT_NEEDED]
        return is_whole

    def value(self, tag: int) -> int:
        """Return the number that a tag gives, 0 where there is no such tag."""
        return self.tags.get(tag, 0)

    def address(self, tag: int) -> int:
        """Return the address that a tag gives, to be read with `some`; 0 if there is none."""
        value = self.tags.get(tag, 0)
        # glibc adds the base where the section can be written; the vdso keeps file addresses.
        return value + self.base if 0 < value < self.base else value

    def text(self, tag: int) -> str:
        """Return the text that a tag gives, empty where there is no such tag."""
        return self._text(self.tags[tag]) if tag in self.tags else ""

    def _text(self, start: int) -> str:
        strings, (first, texts) = self.address(DT_STRTAB), self._texts
        name = texts[start - first :][:_NAME_LIMIT] if start >= first else b""
        if b"\0" not in name:
            name = self.some(strings + start, _NAME_LIMIT) if strings else b""
        return name.partition(b"\0")[0].decode("utf-8", "replace")

    @lazy
    def needed(self) -> tuple[str, ...]:
        """The libraries it needs (its DT_NEEDED entries), in order."""
        first = min(self._starts, default=0)
        size = max(self._starts, default=0) - first + _NAME_LIMIT
        if self._starts and size <= _START:  # they mostly stand together: one look
            self._texts = first, self.some(self.address(DT_STRTAB) + first, size)
        return tuple(filter(None, map(self._text, self._starts)))

    @property
    def soname(self) -> str:
        """The name by which others ask for it, empty if it has none."""
        return self.text(DT_SONAME)


class ElfFile(ElfObject):
    """An open 64-bit little-endian ELF file; empty for any other.

    Read by ``pread``: a mapped file that somebody cuts short meanwhile ends the process.

    Args:
        path: The file.
        budget: The work that may be done for it, together with others if it is shared.

    Attributes:
        header: The first 64 bytes, fewer if the file has no more.
        segments: As `segments_of` has them.
        is_truncated: True if it ends before the parts that the loader maps. It maps them all the
            same, and the first look at what is not there ends the process (SIGBUS).
    """

    def __init__(self, path: str, budget: Budget | None = None) -> None:
        super().__init__(Budget() if budget is None else budget)
        self.header = self._start = b""
        self.segments: list[tuple[int, int, int, int, int, int]] = []
        self.is_truncated = False
        try:
            self._file = open_to_read(path)
        except own_errors(ValueError) as error:
            raise UnreadableError(f"{path!r} is no path") from error
        try:
            self._read()
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def _read(self) -> None:
        self._start = os.pread(self._file, _START, 0)
        self.header = self._start[:64]
        place, length = program_headers(self.header)
        table = self.at(place, length)
        self.segments = segments_of(table)
        # Offset in the file, address, length in the file.
        self._loads = [segment[2:5] for segment in self.segments if segment[0] == PT_LOAD]
        end = max((offset + size for offset, _, size in self._loads if size), default=0)
        self.is_truncated = end > os.fstat(self._file).st_size or len(table) < length
        for _, _, offset, _, size, _ in [s for s in self.segments if s[0] == PT_DYNAMIC][-1:]:
            if size > _DYNAMIC_LIMIT:
                raise UnreadableError("its dynamic section is too long: it is damaged")
            self._take(self.at(offset, size))

    def some(self, address: int, length: int) -> bytes:
        """Return up to `length` bytes at an address; fewer where the file has no more."""
        for offset, start, size in self._loads:
            if start <= address < start + size:
                return self.at(offset + address - start, min(length, start + size - address))
        return b""

    def at(self, place: int, length: int) -> bytes:
        """Return up to `length` bytes at a place in the file; fewer where it has no more."""
        if place + length <= len(self._start):
            return self._start[place : place + length]
        try:
            data = os.pread(self._file, length, place)
        except own_errors(OverflowError, ValueError, MemoryError):
            raise UnreadableError("its headers make no sense") from None
        self.budget.spend(len(data))
        return data

    @property
    def mapped_size(self) -> int:
        """Bytes that the loader maps of it."""
        return sum(size for _, _, size in self._loads)

    def copy_mapped(self, to: int) -> None:
        """Write what the loader maps into another file, each part at its own place."""
        for start, _, size in self._loads:
            os.lseek(to, start, os.SEEK_SET)
            done = 0
            while done < size:
                if not (sent := os.sendfile(to, self._file, start + done, size - done)):
                    raise UnreadableError("it ends too early")
                done += sent

    def places_of(self, name: str) -> list[int]:
        """Return where in the file a name stands, as its own or that of a library it needs."""
        table = self.address(DT_STRTAB)
        starts = [*self._starts, *(self.tags[tag] for tag in (DT_SONAME,) if tag in self.tags)]
        shift = next(o - a for o, a, size in self._loads if a <= table < a + size)
        return [table + start + shift for start in starts if self._text(start) == name]

    def sections(self, *names: bytes) -> dict[bytes, tuple[int, int]]:
        """Return name -> (place in the file, length) of sections, of several the first.

        The loader needs none, and a file may have lost them.
        """
        table, size = number(self.header, 40, 8), number(self.header, 58, 2)
        is_usual = self.segments and table and size == _SECTION
        rows = words(self.at(table, size * number(self.header, 60, 2)), size) if is_usual else []
        own = 8 * number(self.header, 62, 2)  # the section with the names of all
        texts = self.at(rows[own + 3], min(rows[own + 4], _MOST_TEXT)) if own < len(rows) else b""
        found: dict[bytes, tuple[int, int]] = {}
        for first, *row in zip(rows[::8], rows[3::8], rows[4::8]):
            for name in names if first >> 32 != _NO_BITS else ():
                if texts.startswith(name + b"\0", first & 0xFFFFFFFF):
                    found.setdefault(name, (row[0], row[1]))
        return found

    def unique_ids(self) -> tuple[str, ...]:
        """Return its unique definitions that are called ``std::...::id``, as the linker writes."""
        size, strings = self.value(DT_STRSZ), self.address(DT_STRTAB)
        if 0 < size <= _START and _END_OF_ID not in self.some(strings, size):
            return ()
        return tuple(n.decode("utf-8", "replace") for _, n in self.unique() if is_runtime_id(n))

    def unique(self) -> list[tuple[int, bytes]]:
        """Return its unique definitions: where in the file the entry lies, and the name."""
        if not (table := self.address(DT_GNU_HASH)):
            return []
        hashes = GnuTable(self.exactly, table, self.budget)
        first = self.address(DT_SYMTAB) + hashes.first * SYMBOL
        entries = self.some(first, (hashes.end() - hashes.first) * SYMBOL)
        kinds = entries[SYMBOL_KIND::SYMBOL]
        if UNIQUE_OBJECT not in kinds:  # most have none
            return []
        places = [SYMBOL * at for at, kind in enumerate(kinds) if kind == UNIQUE_OBJECT]
        shift = next(o - a for o, a, size in self._loads if a <= first < a + size)
        return [(first + p + shift, self._text(number(entries, p, 4)).encode()) for p in places]


class GnuTable:
    """The newer hash table: about the definitions only, which stand last among the symbols.

    Attributes:
        first: Index of the first symbol that the table is about.
    """

    def __init__(self, read: Read, table: int, budget: Budget) -> None:
        self._budget = budget
        count, self.first, blooms, self._shift = memoryview(read(table, 16)).cast("I")
        if max(count, blooms, self.first) > _MOST_SYMBOLS:
            raise UnreadableError("its hash table makes no sense")
        self._read = read
        self._blooms = memoryview(read(table + 16, 8 * blooms)).cast("Q")
        self._buckets = memoryview(read(table + 16 + 8 * blooms, 4 * count)).cast("I")
        self._chains = table + 16 + 8 * blooms + 4 * count

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

    def codes(self) -> list[int]:
        """Return the hash of each symbol from `first` on, its lowest bit set."""
        found = self._read(self._chains, 4 * (self.end() - self.first))
        return [code | 1 for code in memoryview(found).cast("I")]

    def end(self) -> int:
        """Return how many symbols there are: the last one ends the chain of the last bucket."""
        last: int = max(self._buckets, default=0)
        if last < self.first:
            return self.first
        if last > _MOST_SYMBOLS:
            raise UnreadableError("its hash table makes no sense")
        for at in range(last - self.first, last - self.first + _LONGEST_CHAIN):
            self._budget.spend(STEP)
            if self._read(self._chains + 4 * at, 4)[0] & 1:  # an odd hash marks the end
                return self.first + at + 1
        raise UnreadableError("its hash table has no end")


class OldTable:
    """The older hash table: about all symbols."""

    def __init__(self, read: Read, table: int, budget: Budget) -> None:
        self._budget = budget
        count, self._symbols = memoryview(read(table, 8)).cast("I")
        if max(count, self._symbols) > _MOST_SYMBOLS:
            raise UnreadableError("its hash table makes no sense")
        numbers = memoryview(read(table + 8, 4 * (count + self._symbols))).cast("I")
        self._buckets, self._chains = numbers[:count], numbers[count:]

    def candidates(self, name: bytes) -> list[int]:
        """Return the indices of the symbols whose names have the hash of this one, and others."""
        found: list[int] = []
        index = self._buckets[old_hash(name) % len(self._buckets)] if self._buckets else 0
        while index:
            if index >= self._symbols or len(found) > _LONGEST_CHAIN:
                raise UnreadableError("its hash table has no end")
            self._budget.spend(STEP)
            found.append(index)
            index = self._chains[index]
        return found

    def end(self) -> int:
        """Return how many symbols there are."""
        return self._symbols


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
    """Return the hash of a name in the newer kind of table (DT_GNU_HASH)."""
    if (code := _hashes.get(name)) is None:
        code = 5381
        for sign in name:
            code = (code * 33 + sign) & 0xFFFFFFFF
        if len(_hashes) > 1 << 14:
            _hashes.clear()
        _hashes[name] = code
    return code


# --- What is asked of a file ----------------------------------------------------------------------


class Elf(Record):
    """What is asked of a shared object before it is loaded."""

    needed: tuple[str, ...] = ()  # the libraries it needs, in order
    # the names by which it shows a C++ runtime of its own to everyone: its ``std::...::id``
    # objects, which are one per process by the loader's rules for STB_GNU_UNIQUE. Empty if it links
    # the shared runtime, where they are at home
    runtime: tuple[str, ...] = ()
    soname: str = ""  # the name by which others need it; empty if it has none
    is_truncated: bool = False  # as in `ElfFile`; then nothing else is told


def read_elf(path: str) -> Elf:
    """Return what a shared object says of itself.

    Nothing is known of whatever is no readable 64-bit little-endian ELF file, or a damaged one:
    then the loader has its own words, and this is not the place to judge.
    """
    try:
        with ElfFile(path) as file:
            if file.is_truncated:
                return Elf(is_truncated=True)
            runtime = () if CXX_RUNTIME in file.needed else file.unique_ids()
            return Elf(file.needed, runtime, file.soname)
    except own_errors(OSError):
        return Elf()


def is_runtime_id(name: bytes) -> bool:
    """Return True for ``std::...::id``, by which a C++ runtime knows its facets."""
    return name.startswith(b"_ZNSt") and name.endswith(b"2idE")
