"""What a Windows library or extension says of itself, read from the file alone: nothing is loaded.

Source: Microsoft's "PE Format", and its documentation of ``VS_FIXEDFILEINFO``.
"""

from __future__ import annotations

from cudaguard.elf.reader import LOOKUP, Budget, UnreadableError, number
from cudaguard.files import open_to_read, os, own_errors
from cudaguard.model import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

RUNTIME = "msvcp140.dll"
_CONSTEXPR_MUTEX = (14, 40)  # the linker that came with it
MACHINES = {0x14C: "x86", 0x8664: "AMD64", 0xAA64: "ARM64"}  # as platform.machine() says
_IMPORTS, _RESOURCES = 1, 2  # data directories
_VERSION = 16  # RT_VERSION, a type of resources
_FIXED_INFO = (0xFEEF04BD).to_bytes(4, "little")  # what VS_FIXEDFILEINFO begins with
_BLOCK = 1 << 14
_LONGEST = 1 << 9  # bytes of a name; those that C++ makes of templates are the longest
_MOST = 1 << 12  # libraries of a file, sections, entries of a table of resources
_BUDGET = 1 << 25


class PeFile(Record):
    """What is known of a file; all empty if it is no PE file, or cannot be read.

    Args:
        machine: Of the processor: a value of `MACHINES`, or a number.
        linker: The version of the linker that made it, as in (14, 42).
        version: The file version of its version resource, four numbers.
        imports: The libraries that it needs, in lower case.
        locks_without_init: True if it locks mutexes that it has not initialized, as what MSVC
            14.40 and newer make of ``std::mutex``. An older ``msvcp140.dll`` reads address 0 then.
    """

    machine: str = ""
    linker: tuple[int, ...] = ()
    version: tuple[int, ...] = ()
    imports: tuple[str, ...] = ()
    locks_without_init: bool = False


def read_pe(path: str) -> PeFile:
    """Return what a file says of itself."""
    try:
        reader = _Reader(path)
    except own_errors(OSError, ValueError):
        return PeFile()
    try:
        version, imports = reader.version(), dict(reader.imports())
        is_new = reader.linker >= _CONSTEXPR_MUTEX
        used = {*reader.functions(imports[RUNTIME])} if is_new and RUNTIME in imports else ()
        locks = "_Mtx_lock" in used and "_Mtx_init_in_situ" not in used
        return PeFile(reader.machine, reader.linker, version, tuple(imports), locks)
    except own_errors(OSError):  # damaged: what stands at the beginning is right all the same
        return PeFile(reader.machine, reader.linker)
    finally:
        os.close(reader.file)


class _Reader:
    """An open PE file.

    Raises:
        OSError: by everything, where it cannot be read or makes no sense.
    """

    def __init__(self, path: str) -> None:
        self._budget = Budget(_BUDGET)
        self._blocks: dict[int, bytes] = {}
        self.file = open_to_read(path)
        try:
            self._read_headers()
        except BaseException:
            os.close(self.file)
            raise

    def _read_headers(self) -> None:
        start = number(self._in_file(0, 64), 60, 4) if self._in_file(0, 2) == b"MZ" else 0
        head = self._in_file(start, 24)
        if head[:4] != b"PE\0\0":
            raise UnreadableError("no PE file")
        machine = number(head, 4, 2)
        self.machine = MACHINES.get(machine, hex(machine))
        size = number(head, 20, 2)
        optional = self._in_file(start + 24, size)
        self.linker = tuple(optional[2:4])
        self._word = 8 if number(optional, 0, 2) == 0x20B else 4
        first = 112 if self._word == 8 else 96
        self._directories = [number(optional, at, 4) for at in range(first, size, 8)]
        table = self._in_file(start + 24 + size, 40 * min(number(head, 6, 2), _MOST))
        # Address, size and place in the file of what is mapped.
        self._sections = [
            (number(table, at + 12, 4), number(table, at + 16, 4), number(table, at + 20, 4))
            for at in range(0, len(table), 40)
        ]

    def _in_file(self, place: int, length: int) -> bytes:
        """Return bytes at a place of the file; fewer where it ends."""
        found = b""
        for block in range(place // _BLOCK, (place + length - 1) // _BLOCK + 1):
            if block not in self._blocks:
                self._budget.spend(_BLOCK)
                os.lseek(self.file, block * _BLOCK, os.SEEK_SET)
                self._blocks[block] = os.read(self.file, _BLOCK)
            found += self._blocks[block]
        return found[place % _BLOCK :][:length]

    def _at(self, address: int, length: int) -> bytes:
        """Return bytes at an address, as the loader maps them."""
        self._budget.spend(LOOKUP >> 6)
        for start, size, place in self._sections:
            if start <= address < start + size:
                return self._in_file(place + address - start, min(length, start + size - address))
        raise UnreadableError("its tables point outside of it")

    def _directory(self, index: int) -> int:
        return self._directories[index] if index < len(self._directories) else 0

    def _name(self, address: int) -> str:
        return self._at(address, _LONGEST).partition(b"\0")[0].decode("ascii", "replace")

    def imports(self) -> Iterator[tuple[str, int]]:
        """Yield the libraries that it needs, each with the address of its table of functions."""
        table = self._directory(_IMPORTS)
        for at in range(table, table + 20 * _MOST, 20) if table else ():
            entry = self._at(at, 20)
            if not number(entry, 12, 4):
                return
            functions = number(entry, 0, 4) or number(entry, 16, 4)
            yield self._name(number(entry, 12, 4)).lower(), functions

    def functions(self, at: int) -> Iterator[str]:
        """Yield the functions of a table that have names."""
        while True:
            address = number(self._at(at, self._word), 0, self._word)
            if not address:
                return
            if not address >> (8 * self._word - 1):  # else it has a number, and no name
                yield self._name(address + 2)
            at += self._word

    def version(self) -> tuple[int, ...]:
        """Return the file version; empty if it has none."""
        root = at = self._directory(_RESOURCES)
        for wanted in (_VERSION, None, None) if root else ():  # type, name, language
            head = self._at(at, 16)
            count = min(number(head, 12, 2) + number(head, 14, 2), _MOST)
            entries = self._at(at + 16, 8 * count)
            for place in range(0, len(entries), 8):
                if wanted is None or number(entries, place, 4) == wanted:
                    at = root + (number(entries, place + 4, 4) & 0x7FFFFFFF)
                    break
            else:
                return ()
        if not root:
            return ()
        data = self._at(number(self._at(at, 4), 0, 4), _LONGEST).partition(_FIXED_INFO)[2]
        return tuple(number(data, place, 2) for place in (6, 4, 10, 8)) if len(data) > 12 else ()
