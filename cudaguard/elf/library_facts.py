"""What a mapped file is: its name, size, build and the distribution that installed it.

Read from files, after the program has ended. Source: ``elf(5)`` (notes; ``NT_GNU_BUILD_ID``), the
"Recording installed projects" specification (``RECORD``).
"""

from __future__ import annotations

import ctypes
import re

from cudaguard.elf.reader import ElfFile, number, words
from cudaguard.elf.symbols import DT_JMPREL, DT_PLTRELSZ, DT_RELA, DT_RELASZ, RELOCATION
from cudaguard.files import LARGEST, os, own_errors, read_bytes, read_start
from cudaguard.model import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# --- C++ names as they stand in the source --------------------------------------------------------
# Source: the Itanium C++ ABI; ``__cxa_demangle`` of the C++ runtime, where one is mapped already.

_LENGTH = re.compile(r"\d{1,5}")
_START = re.compile(r"_Z(?:N[rVKRO]*)?(?=\d)")
LONGEST = 1 << 14


def readable(symbols: Iterable[str]) -> list[tuple[str, str]]:
    """Return pairs of a symbol and what it is in the source; nothing is loaded for that."""
    try:
        demangle = _of_the_runtime()
    except own_errors(AttributeError, OSError, ImportError):
        demangle = None
    return [(name, (demangle and demangle(name)) or in_short(name)) for name in symbols]


def _of_the_runtime() -> Callable[[str], str] | None:
    """Return what the C++ runtime makes a name readable by, empty for others; None without one."""
    from cudaguard.elf.resident import Resident

    with Resident() as resident:
        # Linked into many a wheel under a name of its own, but then hidden.
        address = resident.address(resident.handle("libstdc++.so.6"), b"__cxa_demangle")
    if not address:
        return None
    kinds = (ctypes.c_void_p, ctypes.c_char_p, *[ctypes.c_void_p] * 3)
    call = ctypes.PYFUNCTYPE(*kinds)(address)
    free = ctypes.pythonapi["free"]
    free.argtypes, free.restype = (ctypes.c_void_p,), None

    def demangle(name: str) -> str:
        is_mangled = name.startswith("_Z") and len(name) <= LONGEST
        text = call(name.encode(), None, None, None) if is_mangled else None
        if not text:
            return ""
        try:
            return ctypes.string_at(text).decode("utf-8", "replace")
        finally:
            free(text)

    return demangle


def in_short(name: str) -> str:
    """Return the qualified name alone, without parameters; the symbol itself if that is not easy.

    For a process without a C++ runtime.
    """
    match = _START.match(name)
    if match is None:
        return name
    parts, place = [], match.end()
    while True:
        length = _LENGTH.match(name, place)
        if length is None:
            break
        place = length.end() + int(length[0])
        parts.append(name[length.end() : place])
        if name[2] != "N":
            break
    if place > len(name):
        return name
    # What follows the arguments of a template is not read: a member of it, or nothing.
    return f"{'::'.join(parts)}{'<...>' if name[place : place + 1] == 'I' else '(...)'}"


# --- Tells the release of a library by names of files, without loading it -------------------------
# Source: how NVIDIA's wheels are laid out (``nvidia/<part>/lib`` beside their metadata), and how
# libraries are installed elsewhere: ``libx.so.1`` is a link to ``libx.so.1.2.3``.

_BEGINNING = 1 << 12  # bytes: the headers, and mostly the number of the build


def version_of(path: str, soname: str, wheel: str = "") -> tuple[int, ...]:
    """Return the version of a library as far as names tell, empty if they do not.

    The numbers of a `soname` do not tell; `wheel` is the middle of the name of NVIDIA's package.
    """
    name = os.path.basename(os.path.realpath(path))
    found = _numbers(name.partition(".so.")[2]) if name != soname else ()
    return found or (_version_of_wheel(path, wheel) if wheel else ())


def _version_of_wheel(path: str, wheel: str) -> tuple[int, ...]:
    folder = os.path.dirname(os.path.realpath(path))
    for _ in range(3):  # nvidia/<part>/lib
        folder, last = os.path.split(folder)
    if last != "nvidia":
        return ()
    found = set()
    for name in _names(folder):
        dist, _, rest = name.partition("-")
        version, is_metadata, _ = rest.partition(".dist-info")
        if is_metadata and (f"{dist}_".startswith(f"nvidia_{wheel}_")):
            found.add(_numbers(version))
    return found.pop() if len(found) == 1 else ()  # of two, nobody knows whose file it is


def _numbers(text: str) -> tuple[int, ...]:
    words = text.split(".")
    return tuple(map(int, words)) if all(word.isdecimal() for word in words) else ()


def is_same_build(one: str, other: str) -> bool:
    """Return True if two files are copies of one another, as far as size and beginning tell."""
    try:
        same_size = os.path.getsize(one) == os.path.getsize(other)
        return same_size and read_start(one, _BEGINNING) == read_start(other, _BEGINNING)
    except own_errors(OSError):
        return False


_SITE = re.compile(r"(.*/(?:site|dist)-packages)/(.*)", re.DOTALL)
_PT_NOTE, _NT_GNU_BUILD_ID = 4, 3
_LONGEST_NOTES = 1 << 12  # bytes of a segment of notes


class LibraryFile(NamedTuple):
    """One file."""

    soname: str  # the name by which others need it, empty if it has none
    size: int | None  # bytes; None if the file has gone
    build: str  # the first digits of the id that the linker gave the build, empty if it gave none


def read_library(path: str) -> LibraryFile:
    """Read a file; of one that is gone or no ELF file nothing is known."""
    try:
        size = os.stat(path).st_size
        with ElfFile(path) as file:
            return LibraryFile(file.soname, size, _build(file))
    except own_errors(OSError, ValueError):
        return LibraryFile("", None, "")


def _build(file: ElfFile) -> str:
    for kind, _, offset, _, size, _ in file.segments:
        # A header may claim gigabytes.
        notes = file.at(offset, min(size, _LONGEST_NOTES)) if kind == _PT_NOTE else b""
        place = 0
        while place + 12 <= len(notes):
            name, length, note = (number(notes, place + at, 4) for at in (0, 4, 8))
            start = place + 12 + (name + 3) // 4 * 4
            if note == _NT_GNU_BUILD_ID and notes[place + 12 : place + 16] == b"GNU\0":
                return notes[start : start + length].hex()[:16]
            place = start + (length + 3) // 4 * 4
    return ""


def distributions_of(paths: Iterable[str]) -> dict[str, str]:
    """Return for files that an installer has recorded the distribution: ``torch 2.13.0``."""
    wanted: dict[str, dict[str, str]] = {}
    for path in paths:
        match = _SITE.fullmatch(path)
        if match is not None:
            wanted.setdefault(match[1], {})[match[2]] = path
    found: dict[str, str] = {}
    for folder, files in wanted.items():
        for name in _names(folder):
            dist, is_metadata, _ = name.partition(".dist-info")
            try:
                record = read_bytes(f"{folder}/{name}/RECORD", LARGEST) if is_metadata else b""
            except own_errors(OSError):
                continue
            text = "\n" + record.decode("utf-8", "replace")
            for inside in [inside for inside in files if f"\n{inside}," in text]:
                found[files.pop(inside)] = dist.replace("-", " ", 1)
    return found


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except own_errors(OSError):
        return []


# --- How much of the room for thread-local variables at fixed places a library wants --------------
# A library says so by a flag (DF_STATIC_TLS). Older linkers for AArch64 leave it out, and the
# loader goes by the relocations themselves there; so does this.
#
# Source: the gABI, ``elf/dl-reloc.c`` of glibc.

_PT_TLS = 7
_DT_FLAGS, _DF_STATIC_TLS, _DT_RELACOUNT = 30, 0x10, 0x6FFFFFF9
# Machine -> the relocation that takes such a place: R_X86_64_TPOFF64, R_AARCH64_TLS_TPREL.
_TAKES = {62: 18, 183: 1030}
_MOST_RELOCATIONS = 1 << 22  # bytes


def static_tls_of(path: str) -> int:
    """Return how many bytes of static TLS a library wants; 0 where that cannot be read, too."""
    try:
        with ElfFile(path) as file:
            size = next((s[5] for s in file.segments if s[0] == _PT_TLS), 0)
            return size if size and _has_fixed_places(file) else 0
    except own_errors(OSError):
        return 0


def _has_fixed_places(file: ElfFile) -> bool:
    if file.value(_DT_FLAGS) & _DF_STATIC_TLS:
        return True
    wanted = _TAKES.get(number(file.header, 18, 2))
    relative = file.value(_DT_RELACOUNT) * RELOCATION  # these come first
    for start, size in (
        (file.value(DT_RELA) + relative, file.value(DT_RELASZ) - relative),
        (file.value(DT_JMPREL), file.value(DT_PLTRELSZ)),
    ):
        data = file.some(start, min(size, _MOST_RELOCATIONS)) if size > 0 else b""
        if any(info & 0xFFFFFFFF == wanted for info in words(data, RELOCATION)[1::3]):
            return True
    return False
