"""The libraries that are mapped into this process, as the kernel tells it: no ctypes needed.

Source: ``proc(5)``, ``/proc/self/maps``.
"""

from __future__ import annotations

from cudaguard.files import open_file, os, ours


def mapped_files() -> set[str]:
    """Return the files of which code is mapped into this process; empty where nobody tells."""
    try:
        with open_file("/proc/self/maps", "rb", buffering=0) as file:
            lines = file.readall().split(b"\n")
    except ours(OSError):
        return set()
    found = set()
    for line in lines:
        # One line per segment; only that of the code has an x. The path is the sixth word, padded.
        head, slash, path = line.partition(b"/")
        if slash and b"x" in head[:64].partition(b" ")[2][:4]:
            found.add(os.fsdecode(b"/" + path))
    return found
