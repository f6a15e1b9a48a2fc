"""Which GPUs a library has code for: read from the headers of its fat binaries, not their content.

nvcc puts one fat binary for each source file into the section ``.nv_fatbin``, with an image for
each architecture: machine code (a cubin) or PTX, which the driver compiles. What is built with
``-rdc=true`` is linked once more: then ``.nv_fatbin`` has what was linked, and ``__nv_relfatbin``
what the driver links where that does not do. ``.nvFatBinSegment`` has a record for each.

Source: ``fatbinary_section.h`` of CUDA; the headers of images, which are not documented, as
nvcc 11.8 to 13.2 have written them: held against ``cuobjdump --list-elf --list-ptx``.
"""

from __future__ import annotations

from typing import NamedTuple

from cudaguard.elf.reader import ElfFile, UnreadableError, number, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_LINKED, _TO_LINK, _RECORDS = ".nv_fatbin", "__nv_relfatbin", ".nvFatBinSegment"
_MAGIC, _RECORD_MAGIC = 0xBA55ED50, 0x466243B1
_HEADER, _RECORD = 16, 24  # bytes
_OF_DEVICE_LINKER = 2  # version of a record
_IMAGE = 48  # bytes of an image's header that are looked at; more follow
_PTX, _MACHINE_CODE = 1, 2
_LETTERS = ((1 << 20, "a"), (1 << 21, "f"))
_FLAG = 64  # bytes of memory for a name in a set
_MOST_IMAGES = 1 << 18
_MOST_RECORDS = 1 << 16
_MOST_PADDING = 1 << 12
_SECTION, _NO_BITS = 64, 8  # bytes of an entry of the table of sections; type of one without data
_MOST_TEXT = 1 << 20


class GpuCode(NamedTuple):
    """What a library has for GPUs.

    Args:
        parts: The architectures of each fat binary that has some, as in ``{"sm_90a",
            "compute_80"}``: kernels of one part are in all its images, and in no other part.
        ptx: Architecture -> release of the PTX language that it is written in, as in (8, 0); of
            several the newest.
        has_more: True if there are images of kinds that are not known here.
    """

    parts: tuple[frozenset[str], ...] = ()
    ptx: dict[str, tuple[int, int]] = {}  # noqa: RUF012  # never changed
    has_more: bool = False

    @property
    def architectures(self) -> tuple[str, ...]:
        """What is in any part: machine code first, in the order of architectures."""
        return tuple(sorted(frozenset().union(*self.parts), key=_order))


def gpu_code(path: str) -> GpuCode:
    """Return what a library has for GPUs; nothing for one without fat binaries.

    Raises:
        OSError: The file cannot be read, or its tables make no sense.
    """
    with ElfFile(path) as file:
        return _Reader(file).read()


class _Image(NamedTuple):
    flag: str  # empty for one of an unknown kind
    version: tuple[int, int]


class _Reader:
    """Reads the fat binaries of one file."""

    def __init__(self, file: ElfFile) -> None:
        self._file = file
        self._left = _MOST_IMAGES

    def read(self) -> GpuCode:
        """Return what the file has."""
        sections = _sections(self._file)
        if _LINKED not in sections and _TO_LINK not in sections:
            return GpuCode()
        linked = list(self._binaries(*sections.get(_LINKED, (0, 0))))
        to_link = list(self._binaries(*sections.get(_TO_LINK, (0, 0))))
        if not to_link:
            linked = self._without_stubs(linked, *sections.get(_RECORDS, (0, 0)))
        images = [image for binary in (*linked, *to_link) for image in binary]
        ptx: dict[str, tuple[int, int]] = {}
        for image in images:
            if image.flag.startswith("compute"):
                ptx[image.flag] = max(image.version, ptx.get(image.flag, (0, 0)))
        parts = [_flags(binary) for binary in linked]
        if to_link:  # the driver links these for a GPU that all of them have something for
            common = frozenset.intersection(*map(_flags, to_link))
            self._file.budget.spend(_FLAG * len(common) * len(parts))
            parts = [part | common for part in parts] or [common]
        return GpuCode(
            tuple(part for part in parts if part), ptx, any(not image.flag for image in images)
        )

    def _without_stubs(
        self, binaries: list[list[_Image]], at: int, size: int
    ) -> list[list[_Image]]:
        """Leave out what the device linker adds where there is nothing to link: it has no kernels.

        Records and fat binaries are in the same order, that of the object files.
        """
        if size // _RECORD != len(binaries) or len(binaries) > _MOST_RECORDS:
            return binaries
        data = self._file.at(at, size)
        found = []
        for place, binary in zip(range(0, len(data), _RECORD), binaries):
            magic, version = number(data, place, 4), number(data, place + 4, 4)
            if magic != _RECORD_MAGIC:
                return binaries
            if version != _OF_DEVICE_LINKER:
                found.append(binary)
        return found or binaries

    def _binaries(self, place: int, size: int) -> Iterator[list[_Image]]:
        """Yield the images of each fat binary of a section."""
        end = place + size
        while place + _HEADER <= end:
            self._count()
            header = self._file.at(place, _HEADER)
            if number(header, 0, 4) != _MAGIC:
                place = self._past_padding(place, end)
                continue
            first = place + max(_HEADER, number(header, 6, 2))
            place = first + number(header, 8, 8)
            if place > end:
                raise UnreadableError("a fat binary is longer than its section")
            yield list(self._images(first, place))

    def _images(self, place: int, end: int) -> Iterator[_Image]:
        while place + _IMAGE <= end:
            self._count()
            header = self._file.at(place, _IMAGE)
            length = number(header, 4, 4)
            if length < _IMAGE or len(header) < _IMAGE:
                raise UnreadableError("its fat binaries make no sense")
            yield _image(header)
            place += length + number(header, 8, 8)

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise UnreadableError("it has more fat binaries than can be looked at")

    def _past_padding(self, place: int, end: int) -> int:
        data = self._file.at(place, min(_MOST_PADDING, end - place))
        padding = len(data) - len(data.lstrip(b"\0"))
        if not padding // 4:
            raise UnreadableError("it has something else where fat binaries should be")
        return place + padding // 4 * 4


def _image(header: bytes) -> _Image:
    kind, options = number(header, 0, 2), number(header, 40, 8)
    name = {_PTX: "compute", _MACHINE_CODE: "sm"}.get(kind)
    if name is None:
        return _Image("", (0, 0))
    letter = next((letter for bit, letter in _LETTERS if options & bit), "")
    version = number(header, 26, 2), number(header, 24, 2)
    return _Image(f"{name}_{number(header, 28, 4)}{letter}", version)


def _flags(binary: list[_Image]) -> frozenset[str]:
    return frozenset(image.flag for image in binary if image.flag)


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
