"""The dynamic loader of this process, what it was told at the start, and what is mapped.

Source: ``proc(5)``: no ctypes is needed.
"""

from __future__ import annotations

from cudaguard.files import open_file, os, ours


def uses_glibc() -> bool:
    """Return True if the C library of this process is glibc."""
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except ours(AttributeError, ValueError, OSError):
        return False


def at_start(variable: str) -> str:
    """Return what a variable was when this process started, which is when the loader read it."""
    try:
        with open_file("/proc/self/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except ours(OSError):
        return ""
    name = variable.encode() + b"="
    return next((os.fsdecode(e[len(name) :]) for e in entries if e.startswith(name)), "")


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
