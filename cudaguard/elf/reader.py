"""What an ELF file says of itself, read from the file alone: nothing is loaded.

Source: the ELF specification (System V ABI, chapters 4 and 5), ``elf(5)``.
"""

from __future__ import annotations

from cudaguard.files import open_to_read, os, ours
from cudaguard.model import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from typing_extensions import Self

# The dynamic section of a large library takes a few kilobytes, a soname a few dozen bytes.
DYNAMIC_LIMIT = 1 << 16
NAME_LIMIT = 1 << 10
SYMBOLS_LIMIT = 1 << 20
# Of most extensions, what is looked at lies here, but for the dynamic section: one system call.
START = 1 << 14
CXX_RUNTIME = "libstdc++.so.6"
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_SYMTAB, _DT_GNU_HASH = 0, 1, 5, 6, 0x6FFFFEF5
_DT_STRSZ = 10
_END = b"2idE\0"
_DT_SONAME, _DT_RPATH, _DT_RUNPATH = 14, 15, 29
_SEGMENT = 56  # bytes of an entry of the table of segments
_SECTION, _NO_BITS = 64, 8  # bytes of an entry of the table of sections; type of one without data
_SYMBOL = 24  # bytes of an entry of the symbol table
UNIQUE_OBJECT = 0xA1  # STB_GNU_UNIQUE and STT_OBJECT
# What a question about a file, or about a load, may cost: bytes that are read, and what stands for
# the rest. libtorch_python.so of torch 2.13 with all that it needs takes 6 % of it.
BUDGET = 1 << 28
STEP, LOOKUP = 1 << 8, 1 << 12  # a step along a hash chain, or a name; a look for a file
# Files that were whole when they were looked at: device, number, size, time of the last change.
_whole: set[tuple[int, int, int, int]] = set()
MOST_WHOLE = 256


class UnreadableError(ValueError):
    """The object makes no sense, or not to this reader."""


class Budget:
    """The work that a question may take; a damaged or a planted file asks for more.

    Args:
        left: In bytes read, see `STEP` and `LOOKUP`.
    """

    __slots__ = ("left",)

    def __init__(self, left: float = BUDGET) -> None:
        self.left = left

    def spend(self, work: int) -> None:
        """Take note of some work.

        Raises:
            UnreadableError: That is more than was left.
        """
        self.left -= work
        if self.left < 0:
            raise UnreadableError("it takes more work than any real library: it is damaged")


class Elf(Record):
    """What is asked of a shared object before it is loaded.

    Args:
        needed: The libraries it needs (its DT_NEEDED entries), in order.
        runtime: The names by which it shows a C++ runtime of its own to everyone: its
            ``std::...::id`` objects, which are one per process by the loader's rules for
            STB_GNU_UNIQUE. Empty if it links the shared runtime, where they are at home.
        soname: The name by which others need it; empty if it has none.
        search_path: Where the loader looks first for what it needs, as the file says it (DT_RPATH,
            DT_RUNPATH); see `folders_of`.
        is_truncated: True if the file ends before the parts that the loader maps. It maps them
            all the same, and the first look at what is not there ends the process (SIGBUS).
    """

    needed: tuple[str, ...] = ()
    runtime: tuple[str, ...] = ()
    soname: str = ""
    search_path: str = ""
    is_truncated: bool = False


def read_elf(path: str) -> Elf:
    """Read a shared object.

    Nothing is known of whatever is no readable 64-bit little-endian ELF file, or a damaged one:
    then the loader has its own words, and this is not the place to judge.

    Args:
        path: The file.
    """
    try:
        with ElfFile(path) as file:
            if file.is_truncated:
                return Elf(is_truncated=True)
            runtime = () if CXX_RUNTIME in file.needed else file.unique_ids()
            search_path = file.text(_DT_RUNPATH) or file.text(_DT_RPATH)
            return Elf(file.needed, runtime, file.text(_DT_SONAME), search_path)
    except ours(OSError, OverflowError, ValueError):
        return Elf()


def is_truncated(path: str) -> bool:
    """Return True if a file ends before the parts of it that the loader would map."""
    try:
        state = os.stat(path)
        known = state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns
        if known in _whole:
            return False
        with ElfFile(path) as file:
            if file.is_truncated:
                return True
    except ours(OSError, OverflowError, ValueError):
        return False
    if len(_whole) == MOST_WHOLE:
        _whole.clear()
    _whole.add(known)
    return False


def needed_libraries(path: str) -> tuple[str, ...]:
    """Return the libraries that a shared object needs."""
    return read_elf(path).needed


def search_path_for(soname: str, path: str) -> str:
    """Return the search path of a shared object that needs a library; empty for others."""
    try:
        with ElfFile(path) as file:
            if soname in file.needed:
                return file.text(_DT_RUNPATH) or file.text(_DT_RPATH)
    except ours(OSError, OverflowError, ValueError):
        pass
    return ""


def is_runtime_id(name: bytes) -> bool:
    """Return True for ``std::...::id``, by which a C++ runtime knows its facets."""
    return name.startswith(b"_ZNSt") and name.endswith(b"2idE")


def exported_runtime(path: str) -> tuple[str, ...]:
    """Return the names of a C++ runtime that a shared object exports."""
    return read_elf(path).runtime


def folders_of(search_path: str, path: str) -> tuple[str, ...]:
    """Return the folders of a search path of a shared object.

    Args:
        search_path: As in `Elf`.
        path: The file that says it.
    """
    if not search_path:
        return ()
    origin = os.path.dirname(os.path.realpath(path))
    return tuple(
        folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
        for folder in search_path.split(":")
        if folder
    )


class ElfFile:
    """An open 64-bit little-endian ELF file; empty for any other.

    Read by ``pread``: a mapped file that somebody cuts short meanwhile ends the process.

    Args:
        path: The file.
        budget: The work that may be done for it, together with others if it is shared.

    Attributes:
        header: The first 64 bytes, fewer if the file has no more.
        needed: The libraries it needs, in order.
        is_truncated: True if it ends before the parts that the loader maps.
        has_dynamic_section: True if it has a part that is for the loader.

    Raises:
        OSError: The file cannot be read.
        OverflowError, ValueError: Numbers in it make no sense.
    """

    def __init__(self, path: str, budget: Budget | None = None) -> None:
        self.budget = Budget() if budget is None else budget
        self.header = self._start = b""
        self.is_truncated = False
        self.has_dynamic_section = False
        self._file = open_to_read(path)
        self._loads: list[tuple[int, int, int]] = []  # file offset, address, length in the file
        self._tags: dict[int, int] = {}
        self._strings: int | None = None  # where in the file the names begin
        self.needed: tuple[str, ...] = ()
        try:
            self._read()
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._file)

    def _read(self) -> None:
        self._start = os.pread(self._file, START, 0)
        header = self.header = self._start[:64]
        if len(header) < 64 or header[:6] != b"\x7fELF\x02\x01":
            return
        table = _number(header, 32, 8)  # e_phoff
        size, count = _number(header, 54, 2), _number(header, 56, 2)  # e_phentsize, e_phnum
        if size != _SEGMENT:
            return
        segments = self.at(table, size * count)
        dynamic = b""
        words = _words(segments, _SEGMENT)
        # Type and flags, offset, address, physical address, size in the file, in memory, alignment.
        for kind, offset, address, length in zip(words[::7], words[1::7], words[2::7], words[4::7]):
            if kind & 0xFFFFFFFF == _PT_LOAD:
                self._loads.append((offset, address, length))
            elif kind & 0xFFFFFFFF == _PT_DYNAMIC:
                self.has_dynamic_section = length > 0
                if length > DYNAMIC_LIMIT:
                    raise UnreadableError("its dynamic section is too long: it is damaged")
                dynamic = self.at(offset, length)
        end = max((offset + length for offset, _, length in self._loads if length), default=0)
        self.is_truncated = end > os.fstat(self._file).st_size or len(segments) < size * count
        needed: list[int] = []
        words = _words(dynamic, 16)
        for tag, value in zip(words[::2], words[1::2]):
            if tag == _DT_NULL:
                break
            if tag == _DT_NEEDED:
                needed.append(value)
            else:
                self._tags[tag] = value
        self._strings = self._place(_DT_STRTAB)
        texts = (self._name(start) for start in needed)
        self.needed = tuple(text.decode("utf-8", "replace") for text in texts if text)

    def text(self, tag: int) -> str:
        """Return the text that a tag gives, empty where there is no such tag."""
        start = self._tags.get(tag)
        return "" if start is None else self._name(start).decode("utf-8", "replace")

    def value(self, tag: int) -> int:
        """Return the number that a tag gives, 0 where there is no such tag."""
        return self._tags.get(tag, 0)

    address = value  # as the file has them

    def segments(self, kind: int) -> list[bytes]:
        """Return the entries of the table of segments that are of one kind (``p_type``)."""
        if len(self.header) < 64 or _number(self.header, 54, 2) != _SEGMENT:
            return []
        table = self.at(_number(self.header, 32, 8), _SEGMENT * _number(self.header, 56, 2))
        entries = (table[at : at + _SEGMENT] for at in range(0, len(table), _SEGMENT))
        return [one for one in entries if one[:4] == kind.to_bytes(4, "little")]

    def some(self, address: int, length: int) -> bytes:
        """Return up to `length` bytes at an address; fewer where the file has no more."""
        for offset, start, size in self._loads:
            if start <= address < start + size:
                wanted = min(length, start + size - address)
                return self.at(offset + address - start, wanted)
        return b""

    def sections(self, names: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Return name -> (place in the file, length) of those of these sections that it has.

        Of several of one name the first. The loader needs none, and a file may have lost them.
        """
        table, size = _number(self.header, 40, 8), _number(self.header, 58, 2)
        count, last = _number(self.header, 60, 2), _number(self.header, 62, 2)
        if not table or size != _SECTION or not last < count:
            return {}
        words = _words(self.at(table, size * count), _SECTION)
        rows = [words[at : at + 8] for at in range(0, len(words), 8)]
        if not last < len(rows):
            return {}
        texts = self.at(rows[last][3], min(rows[last][4], SYMBOLS_LIMIT))
        found: dict[str, tuple[int, int]] = {}
        wanted = {name.encode() + b"\0": name for name in names}
        for first, _, _, place, length, *_ in rows:
            start = first & 0xFFFFFFFF
            for text, name in wanted.items():
                if texts.startswith(text, start) and first >> 32 != _NO_BITS:
                    found.setdefault(name, (place, length))
        return found

    def unique_ids(self) -> tuple[str, ...]:
        """Return its unique definitions that are called ``std::...::id``, as the linker writes."""
        strings, size = self._strings, self._tags.get(_DT_STRSZ, 0)
        if strings is not None and 0 < size <= START and _END not in self.at(strings, size):
            return ()
        table, chain = self._place(_DT_SYMTAB), self._place(_DT_GNU_HASH)
        # Definitions come last in the table, and the hash table is about them only.
        if table is None or chain is None:
            return ()
        count, first, blooms = (_number(self.at(chain, 12), at, 4) for at in (0, 4, 8))
        chain += 16 + 8 * blooms
        buckets = self.at(chain, 4 * min(count, SYMBOLS_LIMIT))
        last = max(memoryview(buckets[: len(buckets) // 4 * 4]).cast("I"), default=0)
        if not first <= last < first + SYMBOLS_LIMIT:
            return ()  # no definitions
        # The chain of the last bucket ends with the last symbol; an odd hash marks the end.
        place = chain + 4 * count + 4 * (last - first)
        tail = self.at(place, 4 * 256)[::4]
        last += next((index for index, low in enumerate(tail) if low & 1), 0)
        entries = self.at(table + first * _SYMBOL, (last + 1 - first) * _SYMBOL)
        kinds = entries[4::_SYMBOL]
        if UNIQUE_OBJECT not in kinds:
            return ()
        unique = [index for index, kind in enumerate(kinds) if kind == UNIQUE_OBJECT]
        names = [self._name(_number(entries, index * _SYMBOL, 4)) for index in unique]
        return tuple(name.decode("ascii", "replace") for name in names if is_runtime_id(name))

    def _place(self, tag: int) -> int | None:
        """Return where in the file the address lies that a tag gives."""
        value = self._tags.get(tag)
        if value is None:
            return None
        return next((at - a + value for at, a, n in self._loads if a <= value < a + n), None)

    def at(self, place: int, length: int) -> bytes:
        """Return up to `length` bytes at a place in the file; fewer where it has no more."""
        if place + length <= len(self._start):
            return self._start[place : place + length]
        data = os.pread(self._file, length, place)
        self.budget.spend(len(data))
        return data

    def _name(self, start: int) -> bytes:
        if self._strings is None:
            return b""
        return self.at(self._strings + start, NAME_LIMIT).partition(b"\0")[0]


# Not `struct`, whose first import maps a library of its own into the process.


def _words(data: bytes, size: int) -> list[int]:
    """Return the 64-bit words of a table, without an entry that is not whole."""
    return memoryview(data[: len(data) // size * size]).cast("Q").tolist()


def _number(data: bytes, place: int, length: int) -> int:
    return int.from_bytes(data[place : place + length], "little")
