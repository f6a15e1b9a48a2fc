"""What a mapped file is: its name, size, build and the distribution that installed it.

Read from files, after the program has ended. Source: ``elf(5)`` (notes; ``NT_GNU_BUILD_ID``), the
"Recording installed projects" specification (``RECORD``).
"""

from __future__ import annotations

from typing import NamedTuple

from cudaguard.elf.reader import ElfFile
from cudaguard.files import LARGEST, open_to_read, os, ours, read_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

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
