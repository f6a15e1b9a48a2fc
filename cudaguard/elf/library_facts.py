"""What a mapped file is: its name, size, build and the distribution that installed it.

Read from files, after the program has ended. Source: ``elf(5)`` (notes; ``NT_GNU_BUILD_ID``), the
"Recording installed projects" specification (``RECORD``).
"""

from __future__ import annotations

import ctypes
import re
from typing import NamedTuple

from cudaguard.elf.reader import ElfFile
from cudaguard.files import LARGEST, open_to_read, os, ours, read_bytes, read_start

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
    except ours(AttributeError, OSError, ImportError):
        demangle = None
    return [(name, (demangle and demangle(name)) or in_short(name)) for name in symbols]


def _of_the_runtime() -> Callable[[str], str] | None:
    from cudaguard.elf.resident import Resident

    with Resident() as resident:
        # Linked into many a wheel under a name of its own, but then hidden.
        address = resident.address(resident.handle("libstdc++.so.6"), b"__cxa_demangle")
    if not address:
        return None
    call = ctypes.PYFUNCTYPE(
        ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
    )(address)
    free = ctypes.pythonapi["free"]
    free.argtypes, free.restype = (ctypes.c_void_p,), None

    def demangle(name: str) -> str:
        if not name.startswith("_Z") or len(name) > LONGEST:
            return ""
        text = call(name.encode(), None, None, None)
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

    Args:
        path: Its file.
        soname: The name by which it is asked for, whose numbers do not tell the release.
        wheel: The middle of the name of NVIDIA's package that may bring it.
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
    try:
        names = os.listdir(folder)
    except ours(OSError):
        return ()
    found = set()
    for name in names:
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
        return os.path.getsize(one) == os.path.getsize(other) and (
            _beginning(one) == _beginning(other)
        )
    except ours(OSError):
        return False


def _beginning(path: str) -> bytes:
    return read_start(path, _BEGINNING)


SITES = ("/site-packages/", "/dist-packages/")
_DT_SONAME = 14
_PT_NOTE, _NT_GNU_BUILD_ID = 4, 3
_SEGMENT = 56  # bytes of an entry of the table of segments
_LONGEST = 1 << 12  # bytes of a segment of notes


class LibraryFile(NamedTuple):
    """One file.

    Args:
        soname: The name by which others need it, empty if it has none.
        size: Bytes; None if the file has gone.
        build: The first digits of the id that the linker gave the build, empty if it gave none.
    """

    soname: str
    size: int | None
    build: str


def read_library(path: str) -> LibraryFile:
    """Read a file; of one that is gone or no ELF file nothing is known."""
    try:
        size = os.stat(path).st_size
        with ElfFile(path) as file:
            soname = file.text(_DT_SONAME)
        return LibraryFile(soname, size, _build(path))
    except ours(OSError, OverflowError, ValueError):
        return LibraryFile("", None, "")


def _build(path: str) -> str:
    file = open_to_read(path)
    try:
        header = os.pread(file, 64, 0)
        # A header may claim anything else, and gigabytes of it.
        if header[:6] != b"\x7fELF\x02\x01" or _number(header, 54, 2) != _SEGMENT:
            return ""
        segments = os.pread(file, _SEGMENT * _number(header, 56, 2), _number(header, 32, 8))
        for place in range(0, len(segments) - _SEGMENT + 1, _SEGMENT):
            if _number(segments, place, 4) == _PT_NOTE:
                length = min(_number(segments, place + 32, 8), _LONGEST)
                found = _build_in(os.pread(file, length, _number(segments, place + 8, 8)))
                if found:
                    return found
    finally:
        os.close(file)
    return ""


def _build_in(notes: bytes) -> str:
    place = 0
    while place + 12 <= len(notes):
        name, length, kind = (_number(notes, place + at, 4) for at in (0, 4, 8))
        start = place + 12 + (name + 3) // 4 * 4
        if kind == _NT_GNU_BUILD_ID and notes[place + 12 : place + 16] == b"GNU\0":
            return notes[start : start + length].hex()[:16]
        place = start + (length + 3) // 4 * 4
    return ""


def _number(data: bytes, place: int, length: int) -> int:
    return int.from_bytes(data[place : place + length], "little")


def split_site(path: str) -> tuple[str, str]:
    """Return the folder that packages are installed in and a file's path below it.

    Both are empty for a file that lies elsewhere.
    """
    for mark in SITES:
        folder, found, inside = path.rpartition(mark)
        if found:
            return folder + found, inside
    return "", ""


def distributions_of(paths: Iterable[str]) -> dict[str, str]:
    """Return for files that an installer has recorded the distribution: ``torch 2.13.0``."""
    wanted: dict[str, dict[str, str]] = {}
    for path in paths:
        folder, inside = split_site(path)
        if folder:
            wanted.setdefault(folder, {})[inside] = path
    found: dict[str, str] = {}
    for folder, files in wanted.items():
        for name in _names(folder):
            dist, is_metadata, _ = name.partition(".dist-info")
            if is_metadata and files:
                for inside in _recorded(os.path.join(folder, name, "RECORD"), files):
                    found[files.pop(inside)] = dist.replace("-", " ", 1)
    return found


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except ours(OSError):
        return []


def _recorded(record: str, files: Iterable[str]) -> list[str]:
    try:
        text = "\n" + read_bytes(record, LARGEST).decode("utf-8", "replace")
    except ours(OSError):
        return []
    return [inside for inside in files if f"\n{inside}," in text]


# --- How much of the room for thread-local variables at fixed places a library wants --------------
# A library says so by a flag (DF_STATIC_TLS). Older linkers for AArch64 leave it out, and the
# loader goes by the relocations themselves there; so does this.
#
# Source: the gABI, ``elf/dl-reloc.c`` of glibc.

_PT_TLS, _TLS_SEGMENT = 7, 56
_DT_FLAGS, _DF_STATIC_TLS = 30, 0x10
_DT_RELA, _DT_RELASZ, _DT_RELACOUNT, _DT_JMPREL, _DT_PLTRELSZ = 7, 8, 0x6FFFFFF9, 23, 2
_RELOCATION = 24  # bytes
# Machine -> the relocation that takes such a place: R_X86_64_TPOFF64, R_AARCH64_TLS_TPREL.
_TAKES = {62: 18, 183: 1030}
_MOST = 1 << 22  # bytes of relocations


def static_tls_of(path: str) -> int:
    """Return how many bytes of static TLS a library wants; 0 for none, or where it cannot be read.

    Args:
        path: Its file.
    """
    try:
        with ElfFile(path) as file:
            size = _size(file)
            return size if size and _is_fixed(file) else 0
    except ours(OSError, OverflowError, ValueError):
        return 0


def _size(file: ElfFile) -> int:
    """Return the bytes of thread-local variables."""
    for segment in file.segments(_PT_TLS):
        return int.from_bytes(segment[40:48], "little")
    return 0


def _is_fixed(file: ElfFile) -> bool:
    if file.value(_DT_FLAGS) & _DF_STATIC_TLS:
        return True
    wanted = _TAKES.get(int.from_bytes(file.header[18:20], "little"))
    relative = file.value(_DT_RELACOUNT) * _RELOCATION  # these come first
    start, size = file.value(_DT_RELA) + relative, file.value(_DT_RELASZ) - relative
    return wanted is not None and (
        _has(file, start, size, wanted)
        or _has(file, file.value(_DT_JMPREL), file.value(_DT_PLTRELSZ), wanted)
    )


def _has(file: ElfFile, start: int, size: int, wanted: int) -> bool:
    """Return True if a table of relocations has one of a kind."""
    data = file.some(start, min(size, _MOST)) if size > 0 else b""
    words = memoryview(data[: len(data) // _RELOCATION * _RELOCATION]).cast("Q").tolist()
    return any(info & 0xFFFFFFFF == wanted for info in words[1::3])
