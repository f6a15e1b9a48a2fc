"""What an ELF file says of itself, read from the file alone: nothing is loaded.

Source: the ELF specification (System V ABI, chapters 4 and 5), ``elf(5)``.
"""

from __future__ import annotations

import os

# The dynamic section of a large library takes a few kilobytes, a soname a few dozen bytes.
DYNAMIC_LIMIT = 1 << 16
NAME_LIMIT = 1 << 10
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_NEEDED, _DT_STRTAB = 0, 1, 5


def needed_libraries(path: str) -> tuple[str, ...]:
    """Return the libraries that a shared object needs (its DT_NEEDED entries), in order.

    An empty tuple also for whatever is no readable 64-bit little-endian ELF file, or a damaged
    one: then the loader has its own words, and this is not the place to judge.

    Args:
        path: The file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError):
        return ()
    try:
        return _needed(descriptor)
    except (OSError, OverflowError):
        return ()
    finally:
        os.close(descriptor)


def _needed(file: int) -> tuple[str, ...]:
    header = os.pread(file, 64, 0)
    if len(header) < 64 or header[:6] != b"\x7fELF\x02\x01":
        return ()
    table = _number(header, 32, 8)  # e_phoff
    size, count = _number(header, 54, 2), _number(header, 56, 2)  # e_phentsize, e_phnum
    if size != 56:
        return ()
    segments = os.pread(file, size * count, table)
    loads: list[tuple[int, int, int]] = []  # file offset, address, length in the file
    dynamic = b""
    for place in range(0, len(segments) - size + 1, size):
        kind = _number(segments, place, 4)
        offset, address, length = (_number(segments, place + at, 8) for at in (8, 16, 32))
        if kind == _PT_LOAD:
            loads.append((offset, address, length))
        elif kind == _PT_DYNAMIC:
            dynamic = os.pread(file, min(length, DYNAMIC_LIMIT), offset)
    names: list[int] = []
    strings = 0
    for place in range(0, len(dynamic) - 15, 16):
        tag, value = _number(dynamic, place, 8), _number(dynamic, place + 8, 8)
        if tag == _DT_NULL:
            break
        if tag == _DT_NEEDED:
            names.append(value)
        elif tag == _DT_STRTAB:
            strings = value
    # The string table is given by its address in memory; a segment says where that lies.
    start = next((at - a + strings for at, a, n in loads if a <= strings < a + n), None)
    if start is None:
        return ()
    texts = (os.pread(file, NAME_LIMIT, start + name).partition(b"\0")[0] for name in names)
    return tuple(text.decode("utf-8", "replace") for text in texts if text)


def _number(data: bytes, place: int, length: int) -> int:
    # Not `struct`, whose first import maps a library of its own into the process.
    return int.from_bytes(data[place : place + length], "little")
