"""Libraries in memory: copies of which some bytes are changed, and one that needs others.

Source: ``memfd_create(2)``.
"""

from __future__ import annotations

from cudaguard.elf import reader as elf
from cudaguard.elf.process import uses_glibc
from cudaguard.files import os, read_start
from cudaguard.model import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudaguard.elf.reader import ElfFile
    from cudaguard.elf.symbols import SharedObject

_LARGEST_COPY = 1 << 27  # bytes that are mapped of a library: they are copied, and stay
# Who asks for these may look for files beside its own, and a copy lies nowhere.
_ASKS_WHERE = frozenset((b"dladdr", b"dladdr1", b"dlinfo"))
_OF_UNWINDER = b"dl_iterate_phdr"  # so calls one that is linked in


def why_no_room(file: ElfFile) -> str:
    """Return why no library can be copied into memory here; empty if it can."""
    if not uses_glibc():
        return "this C library is not glibc"
    if file.mapped_size > _LARGEST_COPY:
        return f"it has more than {_LARGEST_COPY >> 20} MB"
    lines = read_start("/proc/self/limits", 1 << 12).splitlines()
    if not any(line.startswith(b"Max file size") and b"unlimited" in line for line in lines):
        return "the size of files is limited"
    return ""


def why_no_copy(file: ElfFile, symbols: SharedObject) -> str:
    """Return why a copy of a library would not do; empty if it does."""
    why = why_no_room(file)
    called = {symbol.name for symbol in symbols.wanted()}
    asking = called & _ASKS_WHERE
    if "libgcc_s.so.1" in file.needed:
        asking |= called & {_OF_UNWINDER}
    if asking and not why:
        return f"it calls {min(asking).decode()}(), and may look for files beside its own"
    return why


def copy_of(file: ElfFile, name: str, changed: Iterable[tuple[int, int]]) -> int:
    """Return the descriptor of a copy with other bytes at some places; or an OSError is raised."""
    copy = os.memfd_create(name[:200])
    try:
        if copy <= 2:  # errors would be written into it
            raise OSError("no standard input, output or error is open")
        file.copy_mapped(copy)
        for place, byte in changed:
            os.pwrite(copy, bytes((byte,)), place)
    except BaseException:
        os.close(copy)
        raise
    return copy


def path_of_copy(copy: int) -> str:
    """Return an unused path: the loader returns what it has already mapped by a path."""
    return f"/proc/self/{'./' * next(_numbers)}fd/{copy}"


_numbers = iter(range(1 << 30))


def open_copy(copy: int) -> None:
    """Have the loader map a copy, and close it; an OSError says why it is refused."""
    import _ctypes

    try:
        _ctypes.dlopen(path_of_copy(copy), os.RTLD_NOW)
    finally:
        os.close(copy)


def open_by_name(file: ElfFile, libraries: dict[str, str]) -> None:
    """Open libraries by their names; an OSError says why one is refused.

    By its path, one without a soname would not be found by its name later. So a library for the
    machine of `file` is made in memory that needs them, from their folders. Source: ``elf(5)``.
    """
    from struct import pack

    folders = ":".join(map(os.path.dirname, libraries.values()))
    texts = [b"", os.fsencode(folders), *map(os.fsencode, libraries)]
    _, runpath, *needed = [sum(len(text) + 1 for text in texts[:i]) for i in range(len(texts))]
    strings, begin = b"\0".join((*texts, b"")), 64 + 3 * 56
    size = 16 * (len(needed) + 5)
    tags = [(elf.DT_RUNPATH, runpath), *((elf.DT_NEEDED, start) for start in needed)]
    tags += [(elf.DT_STRTAB, begin + size), (elf.DT_SYMTAB, 0), (elf.DT_STRSZ, len(strings))]
    parts = [(1, 0, size + begin + len(strings)), (2, begin, size), (0x6474E551, 0, 0)]
    image = file.header[:24] + pack("<QQQ", 0, 64, 0) + file.header[48:52]
    image += pack("<6H", 64, 56, len(parts), 0, 0, 0)
    for kind, start, length in parts:  # PT_LOAD, PT_DYNAMIC, PT_GNU_STACK; to read and write
        image += pack("<IIQQQQQQ", kind, 6, start, start, start, length, length, 1 << 16)
    copy = os.memfd_create("cudaguard-names")
    image += b"".join(pack("<QQ", *tag) for tag in (*tags, (0, 0)))
    os.pwrite(copy, image + strings, 0)
    open_copy(copy)
