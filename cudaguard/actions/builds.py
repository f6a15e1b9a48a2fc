"""Variables for the time of a build, a lock that changes hands, the stamp of what was built."""

from __future__ import annotations

import json
import os
from _thread import allocate_lock
from contextlib import contextmanager

from cudaguard.probe.locks import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cudaguard.probe.locks import Identity

STAMP = "cudaguard-stamp.json"
_NINJA_LOG = ".ninja_log"


class Variables:
    """Environment variables that are set while somebody builds, by whichever threads.

    The first one to set a variable keeps what was there, the last one puts it back, unless
    somebody else has changed it since.
    """

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._set: dict[str, tuple[str, str | None, int]] = {}  # ours, what was there, how many

    @contextmanager
    def during(self, values: Mapping[str, str]) -> Iterator[None]:
        """Have variables set inside the block."""
        held = []
        try:
            for name, value in values.items():
                if self._take(name, value):
                    held.append(name)
            yield
        finally:
            for name in held:
                self._give_back(name)

    def theirs(self, name: str) -> str | None:
        """Return what a variable is but for the builds that are under way."""
        with self._lock:
            value = os.environ.get(name)
            ours, before, _ = self._set.get(name, (None, None, 0))
            return before if name in self._set and value == ours else value

    def _take(self, name: str, value: str) -> bool:
        with self._lock:
            ours, before, count = self._set.get(name, (value, os.environ.get(name), 0))
            if count and os.environ.get(name) != ours:
                return False  # changed by somebody else while another thread builds: theirs now
            if not count:
                os.environ[name] = value
            self._set[name] = ours, before, count + 1
            return True

    def _give_back(self, name: str) -> None:
        with self._lock:
            ours, before, count = self._set[name]
            if count > 1:
                self._set[name] = ours, before, count - 1
                return
            del self._set[name]
            if os.environ.get(name) != ours:
                return
            if before is None:
                del os.environ[name]
            else:
                os.environ[name] = before


VARIABLES = Variables()  # those of this process


def take_over(path: str, of: Identity) -> int | None:
    """Replace a lock that nobody holds by one of our own, in one step.

    Others that wait for the lock never see it gone: they would take that for a finished build.

    Args:
        path: The lock.
        of: The one that nobody holds, see `cudaguard.probe.locks.identity`.

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


def read_stamp(folder: str) -> dict[str, str]:
    """Return what the extension in a folder was built for; nothing if that is not known."""
    try:
        with open(os.path.join(folder, STAMP), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    texts = found.items() if isinstance(found, dict) else ()
    return {key: value for key, value in texts if isinstance(value, str)}


def write_stamp(folder: str, stamp: Mapping[str, str]) -> str:
    """Write down what the extension in a folder was built for; return the file.

    Raises:
        OSError: The folder cannot be written to.
    """
    path = os.path.join(folder, STAMP)
    new = f"{path}.{os.getpid()}"
    with open(new, "w", encoding="utf-8") as file:
        json.dump(dict(stamp), file, indent=1)
    os.replace(new, path)
    return path


def have_all_compiled(folder: str) -> None:
    """Have ninja compile everything in a folder anew: what it has no record of is out of date.

    Raises:
        OSError: The folder cannot be written to.
    """
    try:
        os.unlink(os.path.join(folder, _NINJA_LOG))
    except FileNotFoundError:
        return
