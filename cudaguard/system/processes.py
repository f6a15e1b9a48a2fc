"""Processes below this one (Linux): who has started whom, in what state, and who ends with whom.

Source: ``proc(5)``; ``prctl(2)``, PR_SET_CHILD_SUBREAPER and PR_SET_PDEATHSIG.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from cudaguard.files import ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO

    Prctl = Callable[[int, int], object]

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
_STATE, _PARENT, _GROUP, _START = 0, 1, 2, 19  # fields of /proc/PID/stat behind the name
_LONGEST_PATH = 4096  # bytes, PATH_MAX
# Numbers of the system calls read, pread64, fstat and getdents64, which take a descriptor first.
_BY_DESCRIPTOR = {"x86_64": (0, 17, 5, 217), "aarch64": (63, 67, 80, 61)}
_DEEPEST = 1000  # generations; ids that are used again while we look may go round in circles


def _stat(pid: int) -> list[str]:
    """Return the fields behind the name, which may hold blanks and brackets; [] if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode().split()
    except ours(OSError, UnicodeDecodeError):
        return []


def descendants(pid: int) -> tuple[int, ...]:
    """Return the processes that a process and its children have started, parents first.

    Those whose parent has ended are not found: they have been handed to another.
    """
    children: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")
    except ours(OSError):
        return ()
    for name in names:
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
    times = os.times()
    return bool(times.children_user + times.children_system or descendants(os.getpid()))


def is_below(pid: int, top: int) -> bool:
    """Return True if a process is `top`, or one that it has started, directly or not."""
    for _ in range(_DEEPEST):
        if pid == top:
            return True
        fields = _stat(pid)
        if not fields:
            return False
        pid = int(fields[_PARENT])
    return False


def state(pid: int) -> str:
    """Return the state of a process as one letter, ``T`` for stopped; empty if it is gone."""
    fields = _stat(pid)
    return fields[_STATE] if fields else ""


def group_of(pid: int) -> int:
    """Return the process group of a process; 0 if it is gone."""
    fields = _stat(pid)
    return int(fields[_GROUP]) if fields else 0


def start_of(pid: int) -> str:
    """Return when a process was started, which with its id tells it from any other.

    Empty if it is gone, or has ended and only waits for its parent to notice.
    """
    fields = _stat(pid)
    return fields[_START] if fields and fields[_STATE] not in "ZX" else ""


def handles(pid: int, number: int) -> bool:
    """Return True if a process has a handler of its own for a signal."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            for line in file:
                if line.startswith("SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    except ours(OSError, ValueError):
        return False
    return False


def waits_for(pid: int) -> str:
    """Return the file that a process waits for in a system call, empty if that is not to be seen.

    Told of processes of this user, where the kernel lets it look: ``ptrace(2)``.
    """
    try:
        with open(f"/proc/{pid}/syscall", encoding="ascii") as file:
            call, *words = file.read().split()[:3]
        arguments = [int(word, 16) for word in words]
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            # The path is the first argument, or the second behind the descriptor of a folder.
            for address in arguments:
                path = _text_at(memory, address)
                if path.startswith("/"):
                    return path
        if int(call) in _BY_DESCRIPTOR.get(os.uname().machine, ()):
            return os.readlink(f"/proc/{pid}/fd/{arguments[0]}")
    except ours(OSError, ValueError, IndexError):  # it runs, has ended, or is not ours
        return ""
    return ""


class ForkedWait(NamedTuple):
    """A fork whose only thread waits in GNU's OpenMP for threads that fork() did not copy.

    Args:
        pid: The fork.
        parent: The process that it is a copy of.
        threads: How many threads that one has.
        library: The file of libgomp.
    """

    pid: int
    parent: int
    threads: int
    library: str


def openmp_wait(pid: int) -> ForkedWait | None:
    """Return what a fork waits for if that is threads of libgomp that its parent alone has.

    libgomp keeps its threads between parallel regions, and a fork believes that it has them too.
    LLVM's starts new threads in a fork. Only what is certain is told: one thread in all, which
    sleeps in a system call that libgomp itself makes, as it does on x86-64.
    """
    try:
        parent = int(_stat(pid)[_PARENT])
        if len(os.listdir(f"/proc/{pid}/task")) != 1 or _program(pid) != _program(parent):
            return None
        with open(f"/proc/{pid}/syscall", encoding="ascii") as file:
            counter = int(file.read().split()[-1], 16)
        library = _mapped_at(pid, counter)
        if os.path.basename(library).startswith(("libgomp.so", "libgomp-")):
            return ForkedWait(pid, parent, len(os.listdir(f"/proc/{parent}/task")), library)
    except ours(OSError, ValueError, IndexError):  # it runs, has ended, or is not ours
        return None
    return None


def _program(pid: int) -> tuple[str, bytes]:
    """Return the executable and the arguments of a process, which a fork has from its parent."""
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return os.readlink(f"/proc/{pid}/exe"), file.read()


def _mapped_at(pid: int, address: int) -> str:
    """Return the file that a process has mapped at an address, empty if it is none."""
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            start, _, end = line.partition(" ")[0].partition("-")
            if int(start, 16) <= address < int(end, 16):
                _, slash, path = line.rstrip("\n").partition("/")
                return slash + path
    return ""


def load_prctl() -> Prctl:
    """Return the system call, or a function that does nothing where there is none.

    It takes ctypes: to be called before a fork, not in it.
    """
    try:
        import ctypes

        prctl: Prctl = ctypes.CDLL(None).prctl
    except (ImportError, AttributeError, OSError):  # no Linux, or a Python without ctypes
        return lambda *_: None
    return prctl


def end_with(parent: int, prctl: Prctl | None = None, status: int = 1) -> None:
    """Have this process, a fork, killed as soon as its parent ends, however it does.

    Args:
        parent: The parent. Where it has ended already, this process ends here.
        prctl: As `load_prctl` returns it; None to load it here.
        status: The exit status for that.
    """
    from signal import SIGKILL

    (prctl or load_prctl())(PR_SET_PDEATHSIG, SIGKILL)
    if os.getppid() != parent:
        os._exit(status)


def _text_at(memory: IO[bytes], address: int) -> str:
    try:
        memory.seek(address)
        return os.fsdecode(memory.read(_LONGEST_PATH).partition(b"\0")[0])
    except ours(OSError, ValueError, OverflowError):  # there is nothing
        return ""
