"""What `cudaguard run` and `cudaguard bisect` say of causes in the program's own code."""

from __future__ import annotations

import os
import sys

CHECK_CALL = "check argtypes, restype and the pointers of that call"
RELEASE = "take locks in one order everywhere, and release each before waiting for a thread"


def died_in_own_call(signal: str, place: str) -> str:
    """Return where a program died."""
    return f"{signal} comes from a call that the program itself makes, at {place}."


def waits(threads: int, place: str) -> str:
    """Return where a program waits for itself."""
    if threads == 1:
        return f"The only thread waits for a lock or a queue of the program, at {place}."
    return (
        f"All {threads} threads wait for locks or queues of the program, the main one at {place}."
    )


def python() -> str:
    """Return the interpreter as one types it."""
    name = os.path.basename(sys.executable) or "python"
    return name if name.startswith("python") else "python"


def debugger(program: str) -> str:
    """Return the command that shows the frames of C."""
    return f"gdb -batch -ex run -ex bt --args {python()} {program}".rstrip()


def show_stacks(program: str, seconds: float) -> str:
    """Return the command that shows where each process waits."""
    return f"cudaguard run --timeout {max(seconds, 1):.0f} {program}".rstrip()
