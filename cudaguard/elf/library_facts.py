"""What files tell of a library: readable names, release, build, distribution, TLS, GPU code."""

from __future__ import annotations

import re

from cudaguard.elf.reader import STEP, ElfFile, UnreadableError, number
from cudaguard.elf.symbols import SharedObject
from cudaguard.files import bytes_in, names_in, os, own_errors
from cudaguard.model import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# --- C++ names as they stand in the source --------------------------------------------------------
# Source: the Itanium C++ ABI; ``__cxa_demangle`` of the C++ runtime, where one is mapped already.

_LENGTH = re.compile(r"\d{1,5}")
_START = re.compile(r"_Z(?:N[rVKRO]*)?(?=\d)")
_LONGEST = 1 << 14


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
    import ctypes  # which maps libraries: not for who reads files alone

    kinds = (ctypes.c_void_p, ctypes.c_char_p, *[ctypes.c_void_p] * 3)
    call = ctypes.PYFUNCTYPE(*kinds)(address)
    free = ctypes.pythonapi["free"]
    free.argtypes, free.restype = (ctypes.c_void_p,), None

    def demangle(name: str) -> str:
        is_mangled = name.startswith("_Z") and len(name) <= _LONGEST
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
    if (match := _START.match(name)) is None:
        return name
    parts, place = [], match.end()
    while True:
        if (length := _LENGTH.match(name, place)) is None:
            break
        place = length.end() + int(length[0])
        parts.append(name[length.end() : place])
        if name[2] != "N":
            break
    if place > len(name):
        return name
    # What follows the arguments of a template is not read: a member of it, or nothing.
    return f"{'::'.join(parts)}{'<...>' if name[place : place + 1] == 'I' else '(...)'}"


# --- Its build, and the distribution that installed it --------------------------------------------
# Source: ``elf(5)`` (notes; ``NT_GNU_BUILD_ID``), the "Recording installed projects" specification
# (``RECORD``).

_SITE = re.compile(r"(.*/(?:site|dist)-packages|.*(?=/nvidia/))/(.*)", re.DOTALL)
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


def distributions_of(paths: Iterable[str]) -> dict[str, list[str]]:
    """Return for files that an installer has recorded the distributions: ``torch 2.13.0``."""
    wanted: dict[str, dict[str, str]] = {}
    for path in paths:
        if (match := _SITE.fullmatch(path)) is not None:
            wanted.setdefault(match[1], {})[match[2]] = path
    found: dict[str, list[str]] = {}
    for folder, files in wanted.items():
        for info in names_in(folder):
            dist, is_metadata, _ = info.partition(".dist-info")
            record = bytes_in(f"{folder}/{info}/RECORD") if is_metadata else b""
            for one in [one for one in files if os.fsencode(f"\n{one},") in b"\n" + record]:
                found.setdefault(files[one], []).append(dist.replace("-", " ", 1).replace("_", "-"))
    return found


# --- How much of the room for thread-local variables at fixed places a library wants --------------
# A library says so by a flag (DF_STATIC_TLS). Older linkers for AArch64 leave it out, and the
# loader goes by the relocations themselves there; so does this.
#
# Source: the gABI, ``elf/dl-reloc.c`` of glibc.

_PT_TLS = 7
_DT_FLAGS, _DF_STATIC_TLS, _DT_TLSDESC_PLT = 30, 0x10, 0x6FFFFEF6
# Machine -> the relocation that takes such a place: R_X86_64_TPOFF64, R_AARCH64_TLS_TPREL.
_TAKES = {62: 18, (_AARCH64 := 183): 1030}


def static_tls_of(path: str, *, or_takes: bool = False) -> int:
    """Return how many bytes of static TLS a library wants; 0 where that cannot be read, too.

    `or_takes`: or takes while there is room, and could do without (TLS descriptors).
    """
    try:
        with ElfFile(path) as file:
            size = next((s[5] for s in file.segments if s[0] == _PT_TLS), 0)
            return size if size and _has_fixed_places(file, or_takes) else 0
    except own_errors(OSError):
        return 0


def _has_fixed_places(file: ElfFile, or_takes: bool) -> bool:
    machine = number(file.header, 18, 2)
    if file.value(_DT_FLAGS) & _DF_STATIC_TLS:
        return True
    if or_takes:  # what compilers for AArch64 make has descriptors
        return machine == _AARCH64 or _DT_TLSDESC_PLT in file.tags
    wanted = _TAKES.get(machine)
    return any(info & 0xFFFFFFFF == wanted for info, _ in SharedObject(file).relocations())


# --- Which GPUs a library has code for: from the headers of its fat binaries, not their content ---
# nvcc puts one fat binary for each source file into the section ``.nv_fatbin``, with an image for
# each architecture: machine code (a cubin) or PTX, which the driver compiles. What is built with
# ``-rdc=true`` is linked once more: then ``.nv_fatbin`` has what was linked, and ``__nv_relfatbin``
# what the driver links where that does not do. ``.nvFatBinSegment`` has a record for each.
#
# Source: ``fatbinary_section.h`` of CUDA; the headers of images, which are not documented, as
# nvcc 11.8 to 13.2 have written them: held against ``cuobjdump --list-elf --list-ptx``.

_LINKED, _TO_LINK, _RECORDS = b".nv_fatbin", b"__nv_relfatbin", b".nvFatBinSegment"
_MAGIC, _RECORD_MAGIC = 0xBA55ED50, 0x466243B1
_HEADER, _RECORD = 16, 24  # bytes
_OF_DEVICE_LINKER = 2  # version of a record
_IMAGE = 48  # bytes of an image's header that are looked at; more follow
_PTX, _MACHINE_CODE = 1, 2
_LETTERS = ((1 << 20, "a"), (1 << 21, "f"))
_UNKNOWN = ""  # stands for images of kinds that are not known here
_MOST_RECORDS = 1 << 16
_MOST_PADDING = 1 << 12


class GpuCode(NamedTuple):
    """What a library has for GPUs.

    A library whose source files were built for different GPUs is taken for one that knows which of
    its kernels to call.
    """

    # as in ``("sm_90a", "compute_80")``: machine code first, then PTX
    architectures: tuple[str, ...] = ()
    has_more: bool = False  # True if there are images of kinds that are not known here


def gpu_code(path: str) -> GpuCode:
    """Return what a library has for GPUs; nothing for one without fat binaries.

    Raises:
        OSError: The file cannot be read, or its tables make no sense.
    """
    with ElfFile(path) as file:
        sections = file.sections(_LINKED, _TO_LINK, _RECORDS)
        linked = _binaries(file, *sections.get(_LINKED, (0, 0)))
        if not (to_link := _binaries(file, *sections.get(_TO_LINK, (0, 0)))):
            linked = _without_stubs(file, linked, *sections.get(_RECORDS, (0, 0)))
        found = frozenset().union(*linked)
        if to_link:  # the driver links these for a GPU that all of them have something for
            found |= frozenset.intersection(*to_link)
    has_more = any(_UNKNOWN in binary for binary in (*linked, *to_link))
    return GpuCode(tuple(sorted(found - {_UNKNOWN}, key=_order)), has_more)


def _without_stubs(
    file: ElfFile, binaries: list[frozenset[str]], at: int, size: int
) -> list[frozenset[str]]:
    """Leave out what the device linker adds where there is nothing to link: it has no kernels.

    Records and fat binaries are in the same order, that of the object files.
    """
    if size // _RECORD != len(binaries) or len(binaries) > _MOST_RECORDS:
        return binaries
    data = file.at(at, size)
    places = range(0, len(data), _RECORD)
    if any(number(data, place, 4) != _RECORD_MAGIC for place in places):
        return binaries
    versions = [number(data, place + 4, 4) for place in places]
    found = [binary for binary, version in zip(binaries, versions) if version != _OF_DEVICE_LINKER]
    return found or binaries


def _binaries(file: ElfFile, place: int, size: int) -> list[frozenset[str]]:
    """Return the architectures of the images of each fat binary of a section."""
    end, found = place + size, []
    while place + _HEADER <= end:
        file.budget.spend(STEP)
        header = file.at(place, _HEADER)
        if number(header, 0, 4) != _MAGIC:
            data = file.at(place, min(_MOST_PADDING, end - place))
            padding = len(data) - len(data.lstrip(b"\0"))
            if not padding // 4:
                raise UnreadableError("it has something else where fat binaries should be")
            place += padding // 4 * 4
            continue
        at = place + max(_HEADER, number(header, 6, 2))
        place = at + number(header, 8, 8)
        if place > end:
            raise UnreadableError("a fat binary is longer than its section")
        images = set()
        while at + _IMAGE <= place:
            file.budget.spend(STEP)
            header = file.at(at, _IMAGE)
            length = number(header, 4, 4)
            if length < _IMAGE or len(header) < _IMAGE:
                raise UnreadableError("its fat binaries make no sense")
            images.add(_flag_of(header))
            at += length + number(header, 8, 8)
        found.append(frozenset(images))
    return found


def _flag_of(header: bytes) -> str:
    """Return the architecture of an image, as in ``sm_90a``."""
    options = number(header, 40, 8)
    name = {_PTX: "compute", _MACHINE_CODE: "sm"}.get(number(header, 0, 2))
    letter = next((letter for bit, letter in _LETTERS if options & bit), "")
    return f"{name}_{number(header, 28, 4)}{letter}" if name else _UNKNOWN


def _order(flag: str) -> tuple[bool, int, str]:
    name, _, number = flag.partition("_")
    return name != "sm", int(number.rstrip("af")), number
