"""How much of the room for thread-local variables at fixed places a library wants.

A library says so by a flag (DF_STATIC_TLS). Older linkers for AArch64 leave it out, and the loader
goes by the relocations themselves there; so does this.

Source: the gABI, ``elf/dl-reloc.c`` of glibc.
"""

from __future__ import annotations

from cudaguard.elf.reader import ElfFile
from cudaguard.files import ours

_PT_TLS, _SEGMENT = 7, 56
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
