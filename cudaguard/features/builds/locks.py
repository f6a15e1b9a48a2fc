"""Finds who holds a lock file, in ``/proc``, and from the kernel where ``/proc`` may not show all.

Source: ``proc(5)``, ``mount_namespaces(7)``, ``pid_namespaces(7)``, ``fcntl(2)`` (leases).
"""

from __future__ import annotations

import os
import re
import signal
import time
from typing import NamedTuple

from cudaguard.files import open_to_read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Identity = tuple[int, int, int, int]

# File systems that only this machine writes to. Others may be shared with machines whose processes
# cannot be seen from here.
_LOCAL = {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs",
          "reiserfs", "tmpfs", "xfs", "zfs"}  # fmt: skip
# Less memory than any Python has in which torch is loaded: no such process has made a lock.
_SMALLEST = 128 << 20
_FIRST_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel: all processes are seen


class LockFacts(NamedTuple):
    """What is known of a lock and of those who may have made it.

    Args:
        age: Seconds since it was made.
        is_ours: True if the file belongs to this user.
        elsewhere: Why processes that cannot be seen from here may use the folder; else empty.
        holders: Processes that have it open.
        workers: Processes that work in its folder.
        hidden: Processes that may not be looked at.
    """

    age: float
    is_ours: bool = True
    elsewhere: str = ""
    holders: tuple[int, ...] = ()
    workers: tuple[int, ...] = ()
    hidden: tuple[int, ...] = ()


def identity(path: str) -> Identity | None:
    """Return what tells a file from a later one of the same name; None if there is none.

    The number alone would not do: file systems use one again at once.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def look(path: str) -> LockFacts | None:
    """Return what can be seen of a lock and its holders; None if it is gone."""
    path = os.path.realpath(path)
    try:
        file = os.stat(path)
        folder = os.stat(os.path.dirname(path))
    except OSError:
        return None
    own_names = os.path.basename(path), os.path.basename(os.path.dirname(path))
    holders, workers, hidden = [], [], []
    for pid, size in _processes():
        try:
            # A container may have names of its own for them.
            names = own_names if _shares_names(pid) else ("", "")
            if _has_open(pid, file, names[0]):
                holders.append(pid)
            elif pid != os.getpid() and _leads_to(f"/proc/{pid}/cwd", folder, names[1]):
                workers.append(pid)
        except PermissionError:
            if size >= _SMALLEST:
                hidden.append(pid)
        except OSError:  # it has ended meanwhile
            continue
    return LockFacts(
        time.time() - file.st_mtime,
        file.st_uid == os.geteuid(),
        "" if holders or workers else _elsewhere(path),
        tuple(holders),
        tuple(workers),
        tuple(hidden),
    )


def command_of(pid: int) -> list[str]:
    """Return the words of the command line of a process, none if it cannot be read."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return os.fsdecode(file.read(1 << 12)).strip("\0").split("\0")
    except OSError:
        return []


def _processes() -> Iterator[tuple[int, int]]:
    """Yield the processes that may hold a file of this user, with the size of their memory.

    Those are its own; all, for root. What has no memory is a thread of the kernel, or dead.
    """
    user = os.geteuid()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/status", encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:
            continue
        # The owner of the folder would not do: it is root for a process that hides its memory.
        users = re.search(r"^Uid:\s+(.*)$", text, re.MULTILINE)
        size = re.search(r"^VmSize:\s+(\d+) kB", text, re.MULTILINE)
        if size and (user == 0 or users is None or str(user) in users[1].split()):
            yield int(name), int(size[1]) * 1024


def _has_open(pid: int, file: os.stat_result, name: str) -> bool:
    folder = f"/proc/{pid}/fd"
    for number in os.listdir(folder):
        try:
            if _leads_to(f"{folder}/{number}", file, name):
                return True
        except PermissionError:
            raise
        except OSError:  # closed meanwhile, or of a file that nobody can reach
            continue
    return False


def _leads_to(link: str, found: os.stat_result, name: str) -> bool:
    """Return True if a link of a process leads to that file.

    What goes by another name is not looked at: root sees the files of all users, and to look at one
    whose disk or server is dead takes for ever. Without a name, all are.
    """
    is_named = not name or os.path.basename(os.readlink(link)) == name
    return is_named and os.path.samestat(os.stat(link), found)


def _shares_names(pid: int) -> bool:
    """Return True if a process sees the files of this machine as we do."""
    return os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt")


def _elsewhere(path: str) -> str:
    """Return why processes that cannot be seen from here may use a file; else empty."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            mount = mount_of(os.path.realpath(path), file.read())
        is_alone = os.readlink("/proc/self/ns/pid") == _FIRST_PID_NAMESPACE
    except OSError:
        return "/proc cannot be read"
    if mount is None:
        return "its file system is not known"
    point, kind = mount
    if kind not in _LOCAL:
        return f"it lies on {kind}, which other machines may use"
    # A container has a root of its own; a sandbox with processes of its own may have the machine's.
    if not is_alone and (point != "/" or kind != "overlay"):
        return f"processes outside this container cannot be seen, and may use {point}"
    # This may be a sandbox within a container, whose files are those of the container; and what is
    # local here may be exported to other machines.
    is_open = _is_open(path)
    if is_open or (is_open is None and not is_alone):
        return (
            "somebody who cannot be seen from here, outside this sandbox or on another machine, "
            f"{'has' if is_open else 'may have'} it open"
        )
    return ""


def _is_open(path: str) -> bool | None:
    """Return True if any process has a file open, visible from here or not; None if not known.

    The kernel grants a lease on it only if nobody has. Whoever opens the file in the meantime waits
    for the end of that, microseconds later, and a signal tells us: not SIGIO, as usual, which would
    end this process, but one that is ignored unless somebody listens to it.
    """
    import fcntl

    try:
        descriptor = open_to_read(path)
    except OSError:
        return None
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except BlockingIOError:  # somebody has; another one who asks, it may be
        return True
    except OSError:  # this file system knows no leases
        return None
    finally:
        os.close(descriptor)
    return False


def mount_of(path: str, mounts: str) -> tuple[str, str] | None:
    """Return the mount point of a file and the kind of its file system.

    Args:
        path: The file.
        mounts: As in ``/proc/self/mountinfo``.
    """
    found: tuple[str, str] | None = None
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields.split()[4])
        is_above = path == point or path.startswith(point.rstrip("/") + "/")
        if is_above and (found is None or len(point) >= len(found[0])):  # the last one covers
            found = point, rest.split()[0]
    return found
