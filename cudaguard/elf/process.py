"""This process: its memory, what the dynamic loader was told, what it has mapped, and where.

The loader's list (``link_map``) is part of glibc's debugger interface; ``dl_iterate_phdr`` would
call back into Python under the loader's lock, which deadlocks as soon as a second thread loads
something. All memory is read through ``/proc/self/mem``: an address that has been unmapped in the
meantime is an error there and not a crash. No ctypes is needed.

Source: ``link.h``, ``elf.h``, ``dlinfo(3)``, ``proc(5)``; System V ABI, chapter 5.
"""

from __future__ import annotations

import errno
import sys
from functools import lru_cache

from cudaguard.elf.reader import PT_DYNAMIC, Budget, ElfObject, UnreadableError, segments_of, words
from cudaguard.files import bytes_in, os, own_errors
from cudaguard.model import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from typing_extensions import Self

LONGEST_PATH = 1 << 12
MOST_LIBRARIES = 1 << 16  # a damaged list may go round in circles
ENTRY = 32  # bytes of an entry that are public: base, name, dynamic section, next entry
_PAGE = 1 << 12
_MOST_TAGS = 1 << 12
_MOST_MODULES = 1 << 12
_RTLD_DI_LINKMAP = 2


def uses_glibc() -> bool:
    """Return True if the C library of this process is glibc."""
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except own_errors(AttributeError, ValueError, OSError):
        return False


def at_start(variable: str) -> str:
    """Return what a variable was when this process started, which is when the loader read it."""
    entries, name = bytes_in("/proc/self/environ").split(b"\0"), variable.encode() + b"="
    return next((os.fsdecode(e[len(name) :]) for e in entries if e.startswith(name)), "")


def library_path() -> list[str]:
    """Return the folders of LD_LIBRARY_PATH, as the loader has read it."""
    said = at_start("LD_LIBRARY_PATH")
    return [folder or "." for folder in said.replace(";", ":").split(":")] if said else []


def mapped_files() -> list[str]:
    """Return the files of which code is mapped here; on Windows the first loaded is the first."""
    if os.name == "nt":
        return _modules_of_windows()
    found = []
    for line in bytes_in("/proc/self/maps").split(b"\n"):
        # One line per segment; only that of the code has an x. The path is the sixth word, padded.
        head, slash, path = line.partition(b"/")
        if slash and b"x" in head[:64].partition(b" ")[2][:4]:
            found.append(os.fsdecode(b"/" + path))
    return list(dict.fromkeys(found))


def _modules_of_windows() -> list[str]:
    """Return the programs and libraries; empty as long as this process has no ctypes."""
    ctypes: Any = sys.modules.get("ctypes")
    if not hasattr(ctypes, "WinDLL"):
        return []
    api: Any = __import__("_winapi")
    handles, size = (ctypes.c_void_p * _MOST_MODULES)(), ctypes.c_uint32()
    given = ctypes.c_void_p(-1), handles, ctypes.sizeof(handles), ctypes.byref(size)
    ctypes.WinDLL("kernel32").K32EnumProcessModules(*given)
    found = handles[: size.value // ctypes.sizeof(ctypes.c_void_p)]
    return [str(api.GetModuleFileName(handle)) for handle in found if handle]


def identity(path: str) -> object:
    """Return what tells a file from others, by whatever path the loader comes to it."""
    try:
        state = os.stat(path)
    except own_errors(OSError):  # the program has an empty path; or it has gone
        return path
    return state.st_dev, state.st_ino


class Memory:
    """The memory of this process, for reading; a context manager that holds a descriptor.

    Raises:
        OSError: by every method, for an address that cannot be read.
    """

    def __init__(self) -> None:
        if os.name != "posix":
            raise OSError(errno.ENOSYS, "this system does not show it")
        self._file = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def some(self, address: int, length: int) -> bytes:
        """Return up to `length` bytes; fewer where readable memory ends."""
        try:
            return os.pread(self._file, length, address)
        except own_errors(OverflowError, ValueError, MemoryError):  # no address, or no length
            raise OSError(errno.EFAULT, f"no memory at {address:#x}") from None

    def read(self, address: int, length: int) -> bytes:
        """Return `length` bytes."""
        data = self.some(address, length)
        if len(data) != length:
            raise OSError(errno.EFAULT, f"{length} bytes at {address:#x} cannot be read")
        return data

    def number(self, address: int) -> int:
        """Return the 64-bit word at an address."""
        return int.from_bytes(self.read(address, 8), "little")

    def text(self, address: int) -> bytes:
        """Return the bytes up to the next zero byte, at most those of a path."""
        found = b""
        while len(found) < LONGEST_PATH:
            place = address + len(found)
            # Up to the end of the page at most: the next one may not be there.
            part = self.read(place, min(_PAGE - place % _PAGE, 256))
            head, zero, _ = part.partition(b"\0")
            found += head
            if zero:
                break
        return found[:LONGEST_PATH]


# --- What the loader has mapped -------------------------------------------------------------------


_resolved = lru_cache(1024)(os.path.realpath)  # asked at every load, of all that it would use


class Library(NamedTuple):
    """One object that the dynamic loader has mapped."""

    path: str  # its file, as the loader found it; empty for the program
    base: int  # what is added to the addresses that stand in the file
    dynamic: int  # address of its dynamic section in memory

    @property
    def file(self) -> str:
        """The file with links resolved; empty for the program."""
        return _resolved(self.path) if self.path else ""


def library_at(memory: Memory, entry: int) -> tuple[Library, int]:
    """Return the library of an entry of the loader's list, and the address of the next entry."""
    base, name, dynamic, following = words(memory.read(entry, ENTRY))
    path = os.fsdecode(memory.text(name)) if name else ""
    return Library(path, base, dynamic), following


def entries(memory: Memory, entry: int) -> Iterator[tuple[int, Library]]:
    """Walk the loader's list from an entry, as of `first_entry`: address of each, and the library.

    Raises:
        OSError: The list cannot be read.
    """
    seen: set[int] = set()
    while entry and entry not in seen and len(seen) < MOST_LIBRARIES:
        seen.add(entry)
        library, following = library_at(memory, entry)
        yield entry, library
        entry = following


def mapped_libraries() -> list[Library]:
    """Return the libraries in the order in which they were mapped, the program first.

    Raises:
        OSError, AttributeError: The loader's list cannot be found or read.
    """
    with Memory() as memory:
        return [library for _, library in entries(memory, first_entry())]


def loaded_files() -> list[str]:
    """Return the files of `mapped_libraries`; none where the loader's list cannot be read."""
    try:
        return [library.file for library in mapped_libraries()]
    except own_errors(AttributeError, OSError):  # no glibc
        return []


def serving_file(name: str) -> str:
    """Return the file that serves who asks for a library by name, as far as that is certain.

    That is the first one in this process, or else in ``LD_LIBRARY_PATH``; otherwise empty.
    """
    found = [file for file in loaded_files() if os.path.basename(file).startswith(name)]
    found += filter(os.path.exists, (os.path.join(folder, name) for folder in library_path()))
    return found[0] if found else ""


def first_entry() -> int:
    """Return the address of the first entry of the loader's list, which never changes."""
    try:
        with Memory() as memory:
            return rendezvous(memory)[0]
    except own_errors(OSError):
        pass
    import ctypes

    program = ctypes.pythonapi  # the program itself, opened already
    dlinfo = program["dlinfo"]
    dlinfo.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    entry = ctypes.c_void_p()
    if dlinfo(program._handle, _RTLD_DI_LINKMAP, ctypes.addressof(entry)) or not entry.value:
        raise OSError(errno.ENOSYS, "the dynamic loader does not give its list of libraries")
    return entry.value


class Image(ElfObject):
    """A mapped library; its dynamic section is read once."""

    def __init__(self, memory: Memory, library: Library) -> None:
        super().__init__(Budget(float("inf")))  # the loader has read it already
        self.memory, self.library, self.base = memory, library, library.base
        for place in range(library.dynamic, library.dynamic + 16 * _MOST_TAGS, 512):
            data = memory.some(place, 512)
            if self._take(data):
                return
            if len(data) < 512:
                break
        raise UnreadableError(f"{library.path}: its dynamic section has no end")

    def some(self, address: int, length: int) -> bytes:
        """Return up to `length` bytes of memory; fewer where readable memory ends."""
        return self.memory.some(address, length)


# --- Where the loader keeps its list and its global scope, found without asking it ----------------
# The kernel tells where the program lies, the program's dynamic section where the loader has left
# its structure for debuggers, and that where the list begins. The search list of the program is the
# global scope; it is in the private part of the program's entry, right behind three values that
# the kernel tells as well. What does not look as expected is not taken for it.
#
# Source: ``getauxval(3)``, ``proc(5)``; ``link.h`` (``r_debug``, ``link_map``); ``include/link.h``
# of glibc, of which several releases have these fields in this order. Tried with 2.36 and 2.43 on
# x86-64, with 2.41 on AArch64.

_AT_PHDR, _AT_PHNUM, _AT_BASE, _AT_ENTRY = 3, 5, 7, 9
_PT_PHDR, _SEGMENT = 6, 56
_DT_DEBUG = 21
_R_MAP = 8  # in `r_debug`: where the address of the first entry lies
_MOST_SEGMENTS = 64
# Bytes of an entry: at most so many until the search list; the public part, with what precedes
# it in the list, the entry itself and its name space behind it.
_WHOLE_ENTRY, _PUBLIC = 1536, 56


def rendezvous(memory: Memory) -> tuple[int, int]:
    """Return where the loader's list and the global scope are.

    The first is the address of the program's entry; then come those of two words, of the search
    list and of how many entries it has; 0 if that cannot be told.

    Raises:
        OSError: They cannot be found.
    """
    vector = words(bytes_in("/proc/self/auxv"))
    known = dict(zip(vector[::2], vector[1::2]))
    headers, count = known.get(_AT_PHDR, 0), known.get(_AT_PHNUM, 0)
    # Without a base of the loader it is the program itself, as in `ld.so python`.
    if not headers or not 0 < count <= _MOST_SEGMENTS or not known.get(_AT_BASE):
        raise _unknown()
    table = memory.read(headers, count * _SEGMENT)
    places = {kind: address for kind, _, _, address, *_ in segments_of(table)}
    if PT_DYNAMIC not in places or _PT_PHDR not in places:
        raise _unknown()
    base = headers - places[_PT_PHDR]
    dynamic = base + places[PT_DYNAMIC]
    debug = Image(memory, Library("", base, dynamic)).value(_DT_DEBUG)
    first = memory.number(debug + _R_MAP) if debug else 0
    own = words(memory.read(first, _PUBLIC)) if first else [0] * 7
    # It is that of the program, the first, itself, in the first name space.
    if [own[0], own[2], *own[4:7]] != [base, dynamic, 0, first, 0]:
        raise _unknown()
    return first, _scope(memory, first, [headers, known.get(_AT_ENTRY, 0)], count)


def _scope(memory: Memory, first: int, mark: list[int], segments: int) -> int:
    """Return where the search list is in the entry of the program, behind a mark."""
    private = words(memory.some(first, _WHOLE_ENTRY))
    for at in range(_PUBLIC // 8, len(private) - 4):
        if private[at : at + 2] == mark and private[at + 2] & 0xFFFF == segments:
            place, count = private[at + 3], private[at + 4] & 0xFFFFFFFF
            if place and count and memory.number(place) == first:
                return first + 8 * (at + 3)
    return 0


def _unknown() -> OSError:
    return OSError(errno.ENOSYS, "the dynamic loader's list of libraries cannot be found")


class Scope(NamedTuple):
    """The members of the global scope."""

    program: tuple[Library, ...]  # the program, Python's library and what was preloaded
    start: tuple[Library, ...]  # the other libraries that it was started with
    meant: tuple[Library, ...]  # what belongs there, with what it needs
    interposers: tuple[Library, ...]
    opened: tuple[Library, ...]  # the last two, in the order in which the loader asks them


def read_scope(
    memory: Memory, scope: bytes, preloaded: Iterable[str], belongs: Callable[[Library], bool]
) -> Scope:
    """Return the members of the global scope, which is as `cudaguard.system.loader_list` has it.

    `preloaded` are files in LD_PRELOAD; what `belongs` is global on purpose.

    Raises:
        OSError: A member has been unloaded meanwhile.
    """
    # Name of a library that a member needs -> where that member is.
    needed: dict[str, list[Library]] = {}
    program: list[Library] = []
    start: list[Library] = []
    meant: list[Library] = []
    interposers: list[Library] = []
    opened: list[Library] = []
    for entry in words(scope):
        library, _ = library_at(memory, entry)
        image = Image(memory, library)
        name = os.path.basename(library.path)
        asked = needed.get(image.soname) or needed.get(name)
        if not program or name in preloaded or (asked and name.startswith("libpython")):
            group = program
        elif asked is program or asked is start or os.sep not in library.path:  # or the vdso
            group = start
        else:
            group = meant if asked is meant or belongs(library) else interposers
        group.append(library)
        if group is meant or group is interposers:
            opened.append(library)
        if group is not interposers:
            for soname in image.needed:
                needed.setdefault(soname, group)
    return Scope(*map(tuple, (program, start, meant, interposers, opened)))
