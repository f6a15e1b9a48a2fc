"""What `cudaguard run` says of causes in the program's own code."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudaguard.system.processes import ForkedWait

CHECK_CALL = "check argtypes, restype and the pointers of that call"
RELEASE = "take locks in one order everywhere, and release each before waiting for a thread"

FORK_BEFORE = (
    "start the workers with multiprocessing's spawn or forkserver, or before the first parallel "
    "computation; or limit them to one thread (torch.set_num_threads(1), threadpoolctl)"
)


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


def waits_for_openmp(pids: Sequence[int]) -> str:
    """Return which forks wait for threads that they do not have."""
    if len(pids) == 1:
        return (
            f"The forked process {pids[0]} waits forever for OpenMP threads (libgomp) that only "
            "its parent has."
        )
    return (
        f"{len(pids)} forked processes wait forever for OpenMP threads (libgomp) that only their "
        "parent has."
    )


def has_no_threads(wait: ForkedWait) -> str:
    """Return what shows that."""
    return (
        f"process {wait.pid} has 1 thread, which waits in libgomp; process {wait.parent}, which "
        f"forked it, has {wait.threads}"
    )


def with_one_thread(program: str) -> str:
    """Return the command that runs a program without threads of OpenMP."""
    return f"OMP_NUM_THREADS=1 {python()} {program}".rstrip()


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
