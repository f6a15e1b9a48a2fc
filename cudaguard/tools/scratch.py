"""Temporary folders of which nothing stays: what a killed process has left, a later one removes.

Each holds a file that its owner has locked. The kernel gives the lock back when the owner dies,
whatever kills it, and knows of owners in other containers too; process ids would tell of neither.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LOCK = "lock"
_KINDS = ("run", "bisect")
_NAME = re.compile(rf"cudaguard-({'|'.join(_KINDS)})-[0-9a-f]{{16}}")


class Scratch:
    """A new, private, temporary folder.

    Attributes:
        folder: Its path.
        lock: The descriptor that shows that its owner lives.

    Args:
        kind: What it is for, which stands in its name.
        parent: Where it is to lie.

    Raises:
        OSError: None can be made (a full disk).
    """

    def __init__(self, kind: str, parent: str) -> None:
        parent = os.path.abspath(parent)
        remove_abandoned(parent)
        self.folder = os.path.join(parent, f"cudaguard-{kind}-{os.urandom(8).hex()}")
        self.lock = -1
        os.mkdir(self.folder, 0o700)
        self._its = os.lstat(self.folder)
        try:
            # Under another name at first: whoever finds a lock that nobody holds removes it.
            new = os.path.join(self.folder, f"{LOCK}.new")
            self.lock = os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
            os.write(self.lock, _machine())
            _locks(self.lock)
            os.rename(new, os.path.join(self.folder, LOCK))
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Delete it with all that is in it."""
        if os.name != "posix":
            import shutil

            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            with suppress(OSError), _opened(self.folder) as within:
                if os.path.samestat(os.fstat(within), self._its):
                    _remove(self.folder, within)
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1


def remove_abandoned(parent: str) -> None:
    """Delete what killed processes of this user, on this machine, have left there."""
    if os.name != "posix":  # nothing tells there whose owner lives
        return
    try:
        with os.scandir(parent) as entries:
            found = [entry.path for entry in entries if _NAME.fullmatch(entry.name)]
    except OSError:  # whoever wants to write there will see
        return
    for folder in found:
        # Else another has been quicker, or it is not ours.
        with suppress(OSError), _opened(folder) as within:
            if _is_abandoned(within):
                _remove(folder, within)


@contextmanager
def _opened(folder: str) -> Iterator[int]:
    """Yield a descriptor of a folder that only this user can put things in.

    What is checked and removed is what it refers to: where others may rename folders (a shared
    one without the sticky bit), a path leads to something else a moment later.

    Raises:
        OSError: It is none.
    """
    within = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        its = os.fstat(within)
        if its.st_uid != os.geteuid() or its.st_mode & 0o077:
            raise PermissionError(f"{folder}: others may have put things in it")
        yield within
    finally:
        os.close(within)


def _is_abandoned(within: int) -> bool:
    lock = os.open(LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=within)
    try:
        # The locks of other machines are not seen on every network file system.
        return os.read(lock, 64) == _machine() and _locks(lock)
    finally:
        os.close(lock)


def _locks(descriptor: int) -> bool:
    """Lock a file, unless another process holds the lock or there is none to be had."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


def _machine() -> bytes:
    """Return what this machine, since it was started, calls itself; containers in it share that."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return file.read(64).strip()
    except OSError:
        return os.uname().nodename.encode()


def _remove(folder: str, within: int) -> None:
    """Delete a folder by its descriptor; what others keep busy stays."""
    for _, folders, files, here in os.fwalk(".", topdown=False, dir_fd=within):
        for name in folders:
            try:
                os.rmdir(name, dir_fd=here)
            except NotADirectoryError:  # a link to one
                files.append(name)
            except OSError:
                continue
        for name in files:
            with suppress(OSError):
                os.unlink(name, dir_fd=here)
    with suppress(OSError):  # by its path there can only be an empty one, or nothing to remove
        os.rmdir(folder)
