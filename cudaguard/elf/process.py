"""What the dynamic loader of this process is, and what it was told when the process started."""

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
