"""Reader of PE files, the libraries and extensions of Windows: nothing is loaded.

Source: Microsoft's "PE Format", and its documentation of ``VS_FIXEDFILEINFO``.
"""

from __future__ import annotations

import sys
from functools import lru_cache

from cudaguard.elf.process import mapped_files
from cudaguard.elf.reader import Budget, UnreadableError, number
from cudaguard.files import bytes_in, open_to_read, os, own_errors
from cudaguard.model import TYPE_CHECKING, Record
from cudaguard.system.preload import metadata_folders

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudaguard.elf.forecast import ExtensionCheck

MSVCP = "msvcp140.dll"
_OF_RUNTIME = ("concrt140", "msvcp140", "vcomp140", "vcruntime140")
INSTALL_RUNTIME = "winget install Microsoft.VCRedist.2015+.x64"
# The linker whose mutexes need no initialization, and the oldest runtime that can lock such.
# Microsoft promises it from 14.40 on (STL#4730); 14.39 was seen to work, and 14.35 not to.
_CONSTEXPR_MUTEX, _ENOUGH = (14, 40), (14, 39)
_IS_WINDOWS = sys.platform == "win32"
MACHINES = {0x14C: "x86", 0x8664: "AMD64", 0xAA64: "ARM64"}  # as platform.machine() says
_OF_TAG = {"_amd64": "AMD64", "_arm64": "ARM64", "32": "x86"}  # what follows `-win` in a file name
_EXPORTS, _IMPORTS, _RESOURCES = 0, 1, 2  # data directories
_VERSION = 16  # RT_VERSION, a type of resources
_FIXED_INFO = (0xFEEF04BD).to_bytes(4, "little")  # what VS_FIXEDFILEINFO begins with
_BLOCK = 1 << 14
_LONGEST = 1 << 9  # bytes of a name; those that C++ makes of templates are the longest
_MOST = 1 << 12  # libraries of a file, sections, entries of a table of resources
_MOST_KEPT = 64  # libraries
_BUDGET = 1 << 25


class PeFile(Record):
    """Facts about a file; all empty if it is no PE file, or cannot be read."""

    machine: str = ""  # a value of `MACHINES`, or a number
    linker: tuple[int, ...] = ()  # the version of that which made it, as in (14, 42)
    version: tuple[int, ...] = ()  # of its version resource, four numbers
    imports: tuple[str, ...] = ()  # the libraries that it needs, in lower case
    # It locks mutexes that it has not initialized, as what MSVC 14.40 and newer make of
    # ``std::mutex``. An older ``msvcp140.dll`` reads address 0 then.
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
        used = {*reader.functions(imports[MSVCP])} if is_new and MSVCP in imports else ()
        locks = "_Mtx_lock" in used and "_Mtx_init_in_situ" not in used
        return PeFile(reader.machine, reader.linker, version, tuple(imports), locks)
    except own_errors(OSError):  # damaged: what stands at the beginning is right all the same
        return PeFile(reader.machine, reader.linker)


def needed_by(path: str) -> tuple[str, ...]:
    """Return the libraries that a file needs, and what those of them need that lie beside it."""
    own, folder = read_pe(path).imports, os.path.dirname(path)
    return (*own, *(more for name in own for more in read_pe(os.path.join(folder, name)).imports))


def functions_lacking(path: str, library: str) -> list[str]:
    """Return what a file uses of a library, by name, and this copy of that does not have."""
    try:
        client = _Reader(path)
        table = dict(client.imports()).get(os.path.basename(library).lower(), 0)
        state = os.stat(library)
        there = _exports_of(library, state.st_mtime_ns, state.st_size) if table else frozenset()
        return sorted({*client.functions(table)} - there) if there else []
    except own_errors(OSError, ValueError):
        return []


@lru_cache(_MOST_KEPT)
def _exports_of(library: str, *_: int) -> frozenset[str]:
    return frozenset(_Reader(library).exports())


def is_too_old(version: tuple[int, ...]) -> bool:
    """Return True if what MSVC 14.40 or newer has linked fails with it; False if it is unknown."""
    return () < version < _ENOUGH


def system_folder() -> str:
    """Return Windows' folder of libraries."""
    return os.path.join(os.environ.get("SystemRoot", "C:\\Windows"), "System32")


def in_wheels(name: str, folders: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (file, distribution) of the DLLs of a name in lower case, or any, that wheels list."""
    wanted = name.encode() or b".dll"
    for folder, info in metadata_folders(dict.fromkeys(folder or "." for folder in folders)):
        record = bytes_in(os.path.join(folder, info, "RECORD"))
        for line in record.split(b"\n") if wanted in record.lower() else ():
            path = line.rpartition(b",")[0].rpartition(b",")[0].strip(b'"')
            file = path.rpartition(b"/")[2].lower()
            if file == wanted or (not name and file.endswith(wanted)):
                found = os.path.join(folder, path.decode("utf-8", "replace"))
                yield os.path.normpath(found), info.partition("-")[0]


# --- would it load? -------------------------------------------------------------------------------


def check_pe(path: str) -> ExtensionCheck | None:
    """Return whether Windows would load a library; None if it is no file of Windows.

    What lies in its folder or in installed wheels counts as found, since packages add folders to
    the search path. Elsewhere than on Windows nothing is known to be missing.
    """
    from cudaguard.elf.forecast import ExtensionCheck

    file, (folder, name) = read_pe(path), os.path.split(os.path.abspath(path))
    if not file.machine:
        return None

    def fails(cause: str, why: str, remedy: str, *missing: str) -> ExtensionCheck:
        return ExtensionCheck(False, path, cause, why, missing_libraries=missing, remedy=remedy)

    python, _, platform = name.rpartition(".")[0].rpartition(".")[2].partition("-win")
    machine = _OF_TAG.get(platform, file.machine)
    if _IS_WINDOWS:
        python, machine = "cp{}{}".format(*sys.version_info), read_pe(sys.executable).machine
    beside = {dll.lower(): os.path.join(folder, dll) for dll in os.listdir(folder)}
    for needed in (name.lower(), *file.imports):
        other = read_pe(beside.get(needed, "")).machine
        if other not in ("", machine):
            why = f"{needed} is for {other}, and not for {machine}"
            return fails("wrong-machine", why, f"install the build for {machine}")
    pythons = [dll[6:-4] for dll in file.imports if dll[:7] == "python3" and dll[7:8].isdigit()]
    if python[:2] == "cp" and pythons and pythons[0] != python[2:]:
        why = f"{name} was built for Python 3.{pythons[0][1:]}, and not for 3.{python[3:]}"
        return fails("python-abi", why, "install the build for this Python")
    if file.locks_without_init and is_too_old(read_pe(beside.get(MSVCP, "")).version):
        why = f"{name} needs {MSVCP} 14.40 or newer, and an older one lies beside it"
        return fails("older-library", why, "update the package")
    missing = set()
    for user, needed, found in _needed(path, folder):
        lacking = functions_lacking(user, found) if found else []
        if lacking:
            why = f"{os.path.basename(user)} needs {lacking[0]}, which {found} does not have"
            return fails("older-library", why, f"import first what has a newer {needed}")
        if not found:
            missing.add(needed)
    if not _IS_WINDOWS:
        return ExtensionCheck(None, path, "unknown", f"{name} is for Windows, and this is not")
    if missing:
        why = f"{name} needs {', '.join(sorted(missing))}, which Windows would not find"
        is_runtime = any(function.startswith(_OF_RUNTIME) for function in missing)
        remedy = INSTALL_RUNTIME if is_runtime else "install what has it"
        return fails("library-missing", why, remedy, *sorted(missing))
    return ExtensionCheck(True, path)


def _needed(path: str, folder: str) -> Iterator[tuple[str, str, str]]:
    """Yield what a library needs, and what that needs in turn: who does, its name, and its file.

    The file is that which is loaded by the name, if one is; empty if there is none.
    """
    places, wheels, seen, todo = [folder], {}, {""}, [path]
    system = system_folder()
    if _IS_WINDOWS:
        places += [system, os.path.dirname(sys.executable), sys.base_prefix]
        files = (*(file for file, _ in in_wheels("", sys.path)), *mapped_files())
        wheels = {os.path.basename(file).lower(): file for file in files}
    while todo:
        user = todo.pop()
        for needed in {*read_pe(user).imports} - seen:
            seen.add(needed)
            there = (os.path.join(place, needed) for place in places)
            found = next(filter(os.path.isfile, (wheels.get(needed, ""), *there)), "")
            if not needed.startswith(("api-ms-", "ext-ms-")):
                yield user, needed, found
                todo += [found] * bool(found and os.path.dirname(found) != system)


class _Reader:
    """A PE file; all raises OSError where that makes no sense, and ValueError for no path."""

    def __init__(self, path: str) -> None:
        self._path, self._budget = path, Budget(_BUDGET)
        self._blocks: dict[int, bytes] = {}
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
                file = open_to_read(self._path)
                self._blocks[block] = os.pread(file, _BLOCK, block * _BLOCK)
                os.close(file)
            found += self._blocks[block]
        return found[place % _BLOCK :][:length]

    def _at(self, address: int, length: int) -> bytes:
        """Return bytes at an address, as the loader maps them."""
        self._budget.spend(16 * len(self._sections))
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
        while address := number(self._at(at, self._word), 0, self._word):
            if not address >> (8 * self._word - 1):  # else it has a number, and no name
                yield self._name(address + 2)
            at += self._word

    def exports(self) -> Iterator[str]:
        """Yield the functions that it has by name."""
        table = self._directory(_EXPORTS)
        head = self._at(table, 40) if table else bytes(40)
        for number_of in range(number(head, 24, 4)):
            yield self._name(number(self._at(number(head, 32, 4) + 4 * number_of, 4), 0, 4))

    def version(self) -> tuple[int, ...]:
        """Return the file version; empty if it has none."""
        root = at = self._directory(_RESOURCES)
        for wanted in (_VERSION, None, None):  # type, name, language
            head = self._at(at, 16) if root else b""
            count = min(number(head, 12, 2) + number(head, 14, 2), _MOST)
            entries = self._at(at + 16, 8 * count) if count else b""
            rows = (entries[place : place + 8] for place in range(0, len(entries), 8))
            found = next((row for row in rows if wanted in (None, number(row, 0, 4))), b"")
            if not found:
                return ()
            at = root + (number(found, 4, 4) & 0x7FFFFFFF)
        data = self._at(number(self._at(at, 4), 0, 4), _LONGEST).partition(_FIXED_INFO)[2]
        return tuple(number(data, place, 2) for place in (6, 4, 10, 8)) if len(data) > 12 else ()
