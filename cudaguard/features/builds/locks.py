"""Tells who holds the lock of a build, as ``/proc`` shows it, and replaces one that nobody holds.

Source: ``proc(5)``, ``mount_namespaces(7)``, ``pid_namespaces(7)``.
"""

from __future__ import annotations

import os
import re
import time
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Identity = tuple[int, int, int, int]

YOUNG = 3.0  # seconds: a lock is made a moment before anything else shows who works there
# File systems that only this machine writes to. Others may be shared with machines whose processes
# cannot be seen from here.
_LOCAL = {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs",
          "reiserfs", "tmpfs", "xfs", "zfs"}  # fmt: skip
# Less memory than any Python has in which torch is loaded: no such process has made a lock.
_SMALLEST = 128 << 20
_ALL_PROCESSES = "pid:[4026531836]"  # where all of the machine are seen: PROC_PID_INIT_INO


class Lock(NamedTuple):
    """A lock, and whether anybody holds it.

    Args:
        state: ``held`` by a process that has it open, ``in-use`` by one that works in its folder,
            ``unknown``, ``young``, or ``stale``: nobody holds it, and nobody was overlooked.
        age: Seconds since it was made.
        pid: The process that holds it or works there; 0 if none was seen.
        why: Why the state is unknown, as a part of a sentence.
    """

    state: str
    age: float
    pid: int = 0
    why: str = ""


def look(path: str) -> Lock | None:
    """Return what can be seen of a lock and its holder; None if it is gone."""
    path = os.path.realpath(path)
    try:
        file, folder = os.stat(path), os.stat(os.path.dirname(path))
    except OSError:
        return None
    age = time.time() - file.st_mtime
    worker = hidden = 0
    for pid, size in _processes():
        try:
            if _has_open(pid, file, os.path.basename(path)):
                return Lock("held", age, pid)
            name = os.path.basename(os.path.dirname(path))
            if pid != os.getpid() and _leads_to(f"/proc/{pid}/cwd", folder, name):
                worker = pid  # ninja and its compilers outlive a builder that was killed
        except PermissionError:
            hidden = pid if size >= _SMALLEST else hidden
        except OSError:  # it has ended meanwhile
            continue
    if worker:
        return Lock("in-use", age, worker)
    why = _who_is_not_seen(path)
    if not why and file.st_uid != os.geteuid():
        why = "its file belongs to another user"
    elif not why and hidden:
        why = f"process {hidden} cannot be inspected"
    if why:
        return Lock("unknown", age, why=why)
    if age <= YOUNG:
        return Lock("young", age, why="its time is too recent to tell")
    return Lock("stale", age)


def identity(path: str) -> Identity | None:
    """Return what tells a file from a later one of the same name; None if there is none.

    The number alone would not do: file systems use one again at once.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def take_over(path: str, of: Identity) -> int | None:
    """Replace a lock that nobody holds by one of our own, in one step.

    Others that wait for the lock never see it gone: they would take that for a finished build.

    Args:
        path: The lock.
        of: The one that nobody holds, see `identity`.

    Returns:
        The descriptor that holds the new one; None if somebody else was quicker.

    Raises:
        OSError: The folder cannot be written to.
    """
    import fcntl

    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)  # one at a time
        except BlockingIOError:
            return None
        if identity(path) != of:
            return None
        new = f"{path}.{os.getpid()}"
        ours = os.open(new, os.O_CREAT | os.O_EXCL)
        try:
            os.rename(new, path)
        except OSError:
            os.close(ours)
            os.unlink(new)
            raise
        return ours
    finally:
        os.close(folder)


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
    whose disk or server is dead takes for ever.
    """
    is_named = os.path.basename(os.readlink(link)) == name
    return is_named and os.path.samestat(os.stat(link), found)


def _who_is_not_seen(path: str) -> str:
    """Return why processes that cannot be seen from here may use a file; else empty."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            mount = mount_of(path, file.read())
        sees_all = os.readlink("/proc/self/ns/pid") == _ALL_PROCESSES
    except OSError:
        return "/proc cannot be read"
    if mount is None:
        return "its file system is not known"
    point, kind = mount
    if kind not in _LOCAL:
        return f"it lies on {kind}, which other machines may use"
    # A container has a root of its own. All else that it has may be shared with others.
    if not sees_all and (point != "/" or kind != "overlay"):
        return f"processes outside this container cannot be seen, and may use {point}"
    return ""


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
