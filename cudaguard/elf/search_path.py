"""Where the dynamic loader looks for a library that is not mapped yet, and what it would find.

Source: ``ld.so(8)``, ``dlopen(3)``; the format of ``/etc/ld.so.cache`` (``dl-cache.h`` of glibc),
which ``ldconfig -p`` prints.
"""

from __future__ import annotations

import sys

from cudaguard.elf.process import library_path
from cudaguard.elf.reader import DT_RPATH, DT_RUNPATH, LOOKUP, ElfFile
from cudaguard.files import LARGEST, os, own_errors, read_start
from cudaguard.model import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudaguard.elf.reader import ElfObject

CACHE = "/etc/ld.so.cache"
_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER, _ENTRY = 48, 24  # bytes
DT_FLAGS_1, _NO_DEFAULT_FOLDERS = 0x6FFFFFFB, 0x800
_known: dict[str, tuple[tuple[int, int], dict[bytes, list[bytes]]]] = {}
_own: list[tuple[bytes, bytes]] = []


class Place:
    """An object whose libraries are looked for, as far as that matters to the search."""

    def __init__(self, path: str, file: ElfObject, loader: Place | None) -> None:
        self.path = path
        self.loader = loader  # what has asked for this object; None for the program
        self.budget = file.budget
        # What the loader takes `$ORIGIN` for is the folder by which it came here: no links are
        # resolved.
        self._origin = os.path.dirname(os.path.abspath(path))
        self.runpath = self._folders(file.text(DT_RUNPATH))
        self.rpath = () if self.runpath else self._folders(file.text(DT_RPATH))
        self.has_defaults = not file.value(DT_FLAGS_1) & _NO_DEFAULT_FOLDERS

    def _folders(self, text: str) -> tuple[str, ...]:
        return tuple(f for entry in text.split(":") for f in self.expanded(entry)) if text else ()

    def expanded(self, text: str) -> list[str]:
        """Return what a text with `$ORIGIN`, `$LIB` or `$PLATFORM` may stand for."""
        for word in ("$ORIGIN", "${ORIGIN}"):
            text = text.replace(word, self._origin)
        if "$" not in text:
            return [text]
        found = []
        machine = os.uname().machine
        for lib in _lib_folders():
            result = text
            for word, value in (("LIB", lib), ("PLATFORM", machine)):
                result = result.replace(f"${{{word}}}", value).replace(f"${word}", value)
            found.append(result)
        return list(dict.fromkeys(found))


def read_place(path: str) -> Place | None:
    """Return a file whose libraries are looked for; None for one that cannot be read."""
    try:
        with ElfFile(path) as file:
            return Place(path, file, None)
    except own_errors(OSError):
        return None


class SearchPath:
    """Finds libraries as the loader of this process would.

    `program` is that, and the Python library if it is one of its own: what they say counts for
    everything that they load (DT_RPATH). Without `has_variable`, LD_LIBRARY_PATH is passed over.
    """

    def __init__(self, program: tuple[Place, ...] = (), *, has_variable: bool = True) -> None:
        self._program = program
        self._variable = library_path() if has_variable else ()

    def find(self, name: str, place: Place | None = None) -> str:
        """Return the file that an object, or who names no folders (None), would load; else ""."""
        if place is not None and "/" in name:
            return next(filter(fits, place.expanded(name)), "")
        for folder in self._folders(place):
            if place is not None:
                place.budget.spend(LOOKUP)
            path = os.path.join(folder, name)
            if fits(path):
                return path
        if place is not None and not place.has_defaults:
            return ""
        files = map(os.fsdecode, cache_entries(CACHE).get(os.fsencode(name), ()))
        own = (f"{root}/{lib}/{name}" for lib in _lib_folders() for root in ("", "/usr"))
        return next(filter(fits, (*files, *own)), "")

    def _folders(self, place: Place | None) -> Iterator[str]:
        # DT_RPATH is handed on from object to object; DT_RUNPATH is not, and where an object has
        # one, no DT_RPATH of others counts for it.
        runpath = place.runpath if place is not None else ()
        if not runpath:
            while place is not None:
                yield from place.rpath
                place = place.loader
            for program in self._program:
                yield from program.rpath
        yield from self._variable
        yield from runpath


def fits(path: str) -> bool:
    """Return True if the loader stops at a file; it passes over those of other machines."""
    try:
        if not os.access(path, os.F_OK):  # as most: cheaper than the error of a read
            return False
        header = read_start(path, 64)
    except own_errors(OSError, ValueError):
        return False
    return header[:4] != b"\x7fELF" or machine_of(header) == own_machine()


def machine_of(header: bytes) -> tuple[bytes, bytes]:
    """Return what an ELF header says of the machine: width and byte order, and the processor."""
    return header[4:6], header[18:20]


def own_machine() -> tuple[bytes, bytes]:
    """Return the same for this process."""
    if not _own:
        _own.append(machine_of(read_start("/proc/self/exe", 64)))
    return _own[0]


def _lib_folders() -> tuple[str, ...]:
    triplet = getattr(sys.implementation, "_multiarch", "")
    return (f"lib/{triplet}", "lib64", "lib") if triplet else ("lib64", "lib")


def cache_entries(path: str) -> dict[bytes, list[bytes]]:
    """Return library -> files of the loader's cache; empty if it cannot be read.

    Entries of other machines are among them: the files themselves tell.
    """
    try:
        state = os.stat(path)
        key = (state.st_mtime_ns, state.st_size)
        known = _known.get(path)
        if known is not None and known[0] == key:
            return known[1]
        data = read_start(path, LARGEST)
    except own_errors(OSError):
        return {}
    found: dict[bytes, list[bytes]] = {}
    start = data.find(_MAGIC)  # one in the older format may come first
    if start >= 0 and len(data) >= start + _HEADER:
        data = data[start:]
        count = int.from_bytes(data[20:24], "little")
        table = data[_HEADER : _HEADER + count * _ENTRY]
        words = memoryview(table[: len(table) // _ENTRY * _ENTRY]).cast("I")
        for name, place in zip(words[1::6].tolist(), words[2::6].tolist()):
            found.setdefault(_text(data, name), []).append(_text(data, place))
    _known[path] = key, found
    return found


def _text(data: bytes, start: int) -> bytes:
    return data[start : data.find(b"\0", start)]
