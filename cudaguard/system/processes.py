"""Processes below this one (Linux): who has started whom, in what state, and who ends with whom.

Source: ``proc(5)``; ``prctl(2)``, PR_SET_CHILD_SUBREAPER and PR_SET_PDEATHSIG.
"""

from __future__ import annotations

import os

from cudaguard.files import names_in, own_errors, packaged_text, text_in
from cudaguard.model import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Prctl = Callable[[int, int], object]

SIGKILL = 9 if os.name == "posix" else -1  # Windows has none, and `signal` is not light
CANNOT_START = 127  # exit status, as of `env` and `timeout`
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
_STATE, _PARENT, _FAULTS_OF_CHILDREN = 0, 1, 8  # fields of /proc/PID/stat behind the name
_HIGHEST = 1 << 16  # descriptors from here on are not closed
_DEEPEST = 1000  # generations; ids that are used again while we look may go round in circles


def _stat(pid: int) -> list[str]:
    """Return the fields behind the name, which may hold blanks and brackets; [] if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode().split()
    except own_errors(OSError, UnicodeDecodeError):
        return []


def descendants(pid: int) -> tuple[int, ...]:
    """Return the processes that a process and its children have started, parents first.

    Those whose parent has ended are not found: they have been handed to another.
    """
    children: dict[int, list[int]] = {}
    for name in names_in("/proc"):
        if name.isdecimal():
            fields = _stat(int(name))
            if fields:
                children.setdefault(int(fields[_PARENT]), []).append(int(name))
    found: list[int] = []
    todo = [pid]
    while todo:
        below = children.pop(todo.pop(0), [])
        found += below
        todo += below
    return tuple(found)


def has_had_children() -> bool:
    """Return True if this process has started others, whether they run or have ended."""
    fields = _stat(os.getpid())  # the time of a child that has ended soon may be 0, its faults not
    had = int(fields[_FAULTS_OF_CHILDREN]) if fields else sum(os.times()[2:4])
    return bool(had or descendants(os.getpid()))


def is_below(pid: int, top: int) -> bool:
    """Return True if a process is `top`, or one that it has started, directly or not."""
    for _ in range(_DEEPEST):
        if pid in (top, 0):
            return pid == top
        pid = parent_of(pid)
    return False


def parent_of(pid: int) -> int:
    """Return the parent of a process; 0 if it is gone, or has none here."""
    return int((_stat(pid) or "00")[_PARENT])


def state(pid: int) -> str:
    """Return the state of a process as one letter, ``T`` for stopped; empty if it is gone."""
    fields = _stat(pid)
    return fields[_STATE] if fields else ""


def handles(pid: int, number: int) -> bool:
    """Return True if a process has a handler of its own for a signal."""
    status = text_in(f"/proc/{pid}/status").splitlines()
    caught = next((line for line in status if line.startswith("SigCgt:")), "SigCgt: 0")
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


FAULT_SIGNALS = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSYS", "SIGTRAP")
# Exit statuses of Windows with which crashed processes end -> what they mean.
_CRASHES = packaged_text(os.path.join(os.path.dirname(__file__), "windows_crashes.txt"))
CRASHES_OF_WINDOWS = {int(one[:10], 16): one[11:] for one in _CRASHES.splitlines()[1:]}


def shell_status(status: int) -> int:
    """Return the status that a shell tells of a process, as `subprocess` has it."""
    return 128 - status if -65 <= status < 0 else abs(status)


def signal_name(number: int) -> str:
    """Return the name of a signal, as in ``SIGSEGV``; that of a status on Windows."""
    import signal

    if number in CRASHES_OF_WINDOWS:
        return f"{CRASHES_OF_WINDOWS[number]}, 0x{number:08X}"
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def load_prctl() -> Prctl:
    """Return the system call, or a function that does nothing where there is none.

    It takes ctypes: to be called before a fork, not in it.
    """
    try:
        import ctypes

        prctl: Prctl = ctypes.CDLL(None).prctl
    except (ImportError, AttributeError, OSError, TypeError):  # no Linux, or no ctypes
        return lambda *_: None
    return prctl


def end_with(parent: int, prctl: Prctl, number: int = 9) -> None:
    """Have this process, a fork, get a signal (SIGKILL) as soon as its parent ends, however.

    Where that has ended already, this process ends here.
    """
    prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def close_files(*kept: int) -> None:
    """Close all descriptors but these; the standard streams lead to nowhere then."""
    streams = {0, 1, 2}.difference(kept)
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in streams:
            os.dup2(nothing, stream)
    except OSError:  # a bare chroot, or no descriptor is left
        for stream in streams:
            os.closerange(stream, stream + 1)
    first = 3
    for number in (*sorted(file for file in kept if file > 2), _HIGHEST):
        os.closerange(first, number)
        first = number + 1


# --- Which processors this process may use; whether the kernel has killed for memory --------------
# Source: ``proc(5)``, ``cgroups(7)``; kernel documentation, "Control Group v2", "Memory Resource
# Controller".

# Where the hierarchies are mounted (the second one beside those of version 1), and the file.
_VERSION_2 = (("sys/fs/cgroup", "sys/fs/cgroup/unified"), "memory.events")
_VERSION_1 = (("sys/fs/cgroup/memory",), "memory.oom_control")


def cores() -> int:
    """Return how many processors this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def oom_kills(root: str = "/") -> int:
    """Return how many processes of this control group the kernel has killed for want of memory.

    -1 where nobody tells.
    """
    for line in text_in(root, "proc/self/cgroup").splitlines():
        controllers, _, group = line.partition(":")[2].partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        places, name = _VERSION_1 if controllers else _VERSION_2
        # In a container the path may be that of the host: what can be seen is the top then.
        parts = [part for part in group.split("/") if part not in ("", "..")]
        for place in places:
            for count in range(len(parts), -1, -1):
                for entry in text_in(root, place, *parts[:count], name).splitlines():
                    word, _, number = entry.partition(" ")
                    if word == "oom_kill" and number.isdecimal():
                        return int(number)
    return -1
