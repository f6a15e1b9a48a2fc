"""Write to memory of this process that is mapped read-only, and leave its protection as it is."""

from __future__ import annotations

import errno

from cudaguard.files import open_file, os, ours
from cudaguard.system.loader_list import LoaderNews


def write(address: int, data: bytearray) -> None:
    """Write bytes to an address of a symbol table.

    Raises:
        OSError: The kernel forbids it.
    """
    try:
        _write_as_debugger(address, data)
    except ours(OSError):  # a hardened kernel
        _write_unprotected(address, data)
    LoaderNews.everything.note_hidden()


def _write_as_debugger(address: int, data: bytearray) -> None:
    """Write through ``/proc/self/mem``, past the protection of the pages, which stays."""
    file = os.open("/proc/self/mem", os.O_WRONLY | os.O_CLOEXEC)
    try:
        done = 0
        while done < len(data):
            done += os.pwrite(file, data[done:], address + done)
    finally:
        os.close(file)


def _write_unprotected(address: int, data: bytearray) -> None:
    """Make the pages writable, write, and protect them as before."""
    import ctypes
    import mmap

    protect = ctypes.pythonapi["mprotect"]
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    end = address + len(data)
    changed = [
        (max(start, address - address % mmap.PAGESIZE), min(stop, end + -end % mmap.PAGESIZE), bits)
        for start, stop, bits in _protections()
        if start < end and stop > address
    ]
    # On AArch64, pages of code may be marked so that jumps land only where they should (PROT_BTI);
    # nothing says which, and the mark would be lost.
    if os.uname().machine == "aarch64" and any(bits & mmap.PROT_EXEC for _, _, bits in changed):
        raise OSError(errno.EACCES, "the symbol table lies in pages of code")
    try:
        for start, stop, bits in changed:
            # Execution stays allowed: old libraries keep the table in the segment of their code.
            if protect(start, stop - start, bits | mmap.PROT_WRITE):
                raise OSError(errno.EACCES, "the symbol table cannot be made writable")
        ctypes.memmove(address, (ctypes.c_char * len(data)).from_buffer(data), len(data))
    finally:
        for start, stop, bits in changed:
            protect(start, stop - start, bits)


def _protections() -> list[tuple[int, int, int]]:
    """Return start, end and protection of each mapping of this process."""
    import mmap

    bits = {"r": mmap.PROT_READ, "w": mmap.PROT_WRITE, "x": mmap.PROT_EXEC}
    found = []
    with open_file("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        for line in file:
            area, flags = line.split()[:2]
            start, _, stop = area.partition("-")
            found.append((int(start, 16), int(stop, 16), sum(bits.get(sign, 0) for sign in flags)))
    return found
