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

from cudaguard.elf.reader import ElfFile, UnreadableError

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
_MOST_IMAGES = 1 << 18
_MOST_RECORDS = 1 << 16
_MOST_PADDING = 1 << 12


class GpuCode(NamedTuple):
    """What a library has for GPUs.

    A library whose source files were built for different GPUs is taken for one that knows which of
    its kernels to call.

    Args:
        architectures: As in ``("sm_90a", "compute_80")``: machine code first, then PTX.
        has_more: True if there are images of kinds that are not known here.
    """

    architectures: tuple[str, ...] = ()
    has_more: bool = False


def gpu_code(path: str) -> GpuCode:
    """Return what a library has for GPUs; nothing for one without fat binaries.

    Raises:
        OSError: The file cannot be read.
        OverflowError, ValueError: Its tables make no sense.
    """
    with ElfFile(path) as file:
        return _Reader(file).read()


class _Reader:
    """Reads the fat binaries of one file: the architecture of each image, "" if it is unknown."""

    def __init__(self, file: ElfFile) -> None:
        self._file = file
        self._left = _MOST_IMAGES

    def read(self) -> GpuCode:
        """Return what the file has."""
        sections = self._file.sections((_LINKED, _TO_LINK, _RECORDS))
        linked = list(self._binaries(*sections.get(_LINKED, (0, 0))))
        to_link = list(self._binaries(*sections.get(_TO_LINK, (0, 0))))
        if not to_link:
            linked = self._without_stubs(linked, *sections.get(_RECORDS, (0, 0)))
        found = frozenset().union(*linked)
        if to_link:  # the driver links these for a GPU that all of them have something for
            found |= frozenset.intersection(*to_link)
        has_more = any("" in binary for binary in (*linked, *to_link))
        return GpuCode(tuple(sorted(found - {""}, key=_order)), has_more)

    def _without_stubs(
        self, binaries: list[frozenset[str]], at: int, size: int
    ) -> list[frozenset[str]]:
        """Leave out what the device linker adds where there is nothing to link: it has no kernels.

        Records and fat binaries are in the same order, that of the object files.
        """
        if size // _RECORD != len(binaries) or len(binaries) > _MOST_RECORDS:
            return binaries
        data = self._file.at(at, size)
        found = []
        for place, binary in zip(range(0, len(data), _RECORD), binaries):
            magic, version = _number(data, place, 4), _number(data, place + 4, 4)
            if magic != _RECORD_MAGIC:
                return binaries
            if version != _OF_DEVICE_LINKER:
                found.append(binary)
        return found or binaries

    def _binaries(self, place: int, size: int) -> Iterator[frozenset[str]]:
        """Yield the architectures of each fat binary of a section."""
        end = place + size
        while place + _HEADER <= end:
            self._count()
            header = self._file.at(place, _HEADER)
            if _number(header, 0, 4) != _MAGIC:
                place = self._past_padding(place, end)
                continue
            first = place + max(_HEADER, _number(header, 6, 2))
            place = first + _number(header, 8, 8)
            if place > end:
                raise UnreadableError("a fat binary is longer than its section")
            yield frozenset(self._images(first, place))

    def _images(self, place: int, end: int) -> Iterator[str]:
        while place + _IMAGE <= end:
            self._count()
            header = self._file.at(place, _IMAGE)
            length = _number(header, 4, 4)
            if length < _IMAGE or len(header) < _IMAGE:
                raise UnreadableError("its fat binaries make no sense")
            yield _architecture(header)
            place += length + _number(header, 8, 8)

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


def _architecture(header: bytes) -> str:
    name = {_PTX: "compute", _MACHINE_CODE: "sm"}.get(_number(header, 0, 2))
    if name is None:
        return ""
    options = _number(header, 40, 8)
    letter = next((letter for bit, letter in _LETTERS if options & bit), "")
    return f"{name}_{_number(header, 28, 4)}{letter}"


def _order(flag: str) -> tuple[bool, int, str]:
    name, _, number = flag.partition("_")
    return name != "sm", int(number.rstrip("af")), number


def _number(data: bytes, place: int, length: int) -> int:
    return int.from_bytes(data[place : place + length], "little")
