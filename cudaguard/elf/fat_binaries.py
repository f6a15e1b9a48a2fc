"""Which GPUs a library has code for: read from the headers of its fat binaries, not their content.

nvcc puts one fat binary for each source file into the section ``.nv_fatbin``, with an image for
each architecture: machine code (a cubin) or PTX, which the driver compiles. What is built with
``-rdc=true`` is linked once more: then ``.nv_fatbin`` has what was linked, and ``__nv_relfatbin``
what the driver links where that does not do. ``.nvFatBinSegment`` has a record for each.

Source: ``fatbinary_section.h`` of CUDA; the headers of images, which are not documented, as
nvcc 11.8 to 13.2 have written them: held against ``cuobjdump --list-elf --list-ptx``.
"""

from __future__ import annotations

from cudaguard.elf.reader import STEP, ElfFile, UnreadableError, number, words
from cudaguard.model import NamedTuple

_LINKED, _TO_LINK, _RECORDS = ".nv_fatbin", "__nv_relfatbin", ".nvFatBinSegment"
_MAGIC, _RECORD_MAGIC = 0xBA55ED50, 0x466243B1
_HEADER, _RECORD = 16, 24  # bytes
_OF_DEVICE_LINKER = 2  # version of a record
_IMAGE = 48  # bytes of an image's header that are looked at; more follow
_PTX, _MACHINE_CODE = 1, 2
_LETTERS = ((1 << 20, "a"), (1 << 21, "f"))
_UNKNOWN = ""  # stands for images of kinds that are not known here
_MOST_RECORDS = 1 << 16
_MOST_PADDING = 1 << 12
_SECTION, _NO_BITS = 64, 8  # bytes of an entry of the table of sections; type of one without data
_MOST_TEXT = 1 << 20


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
        sections = _sections(file)
        linked = _binaries(file, *sections.get(_LINKED, (0, 0)))
        to_link = _binaries(file, *sections.get(_TO_LINK, (0, 0)))
        if not to_link:
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
    found = [one for one, version in zip(binaries, versions) if version != _OF_DEVICE_LINKER]
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


def _sections(file: ElfFile) -> dict[str, tuple[int, int]]:
    """Return name -> (place in the file, length) of the sections about GPUs that it has.

    Of several of one name the first. The loader needs none, and a file may have lost them.
    """
    header = file.header
    table, size = number(header, 40, 8), number(header, 58, 2)
    count, last = number(header, 60, 2), number(header, 62, 2)
    if not table or size != _SECTION or not last < count:
        return {}
    numbers = words(file.at(table, size * count), _SECTION)
    rows = [numbers[at : at + 8] for at in range(0, len(numbers), 8)]
    if not last < len(rows):
        return {}
    texts = file.at(rows[last][3], min(rows[last][4], _MOST_TEXT))
    found: dict[str, tuple[int, int]] = {}
    for first, _, _, place, length, *_ in rows:
        start = first & 0xFFFFFFFF
        for name in (_LINKED, _TO_LINK, _RECORDS):
            if texts.startswith(name.encode() + b"\0", start) and first >> 32 != _NO_BITS:
                found.setdefault(name, (place, length))
    return found
