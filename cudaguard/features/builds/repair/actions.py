"""Variables for the time of a build, a lock that changes hands, the stamp of what was built."""

from __future__ import annotations

import json
import os
from _thread import allocate_lock, get_ident

from cudaguard.features.builds.locks import identity
from cudaguard.files import read_bytes, write_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from cudaguard.features.builds.locks import Identity

STAMP = "cudaguard-stamp.json"
_NINJA_LOG = ".ninja_log"


class Variables:
    """Environment variables that are set while somebody builds, by whichever threads.

    The first one to set a variable keeps what was there, the last one puts it back, unless
    somebody else has changed it since. A process that is forked meanwhile has only the builds of
    the thread that forked it.
    """

    def __init__(self) -> None:
        self._lock = allocate_lock()
        # Ours, what was there, and the threads that have it set, one as often as it has.
        self._set: dict[str, tuple[str, str | None, tuple[int, ...]]] = {}
        self._heeds_forks = False

    def during(self, values: Mapping[str, str]) -> _During:
        """Return what has variables set inside its block."""
        return _During(self, values)

    def take(self, values: Mapping[str, str], thread: int) -> list[str]:
        """Set variables for a thread, and return which of them `give_back` has to be given."""
        held: list[str] = []
        try:
            for name, value in values.items():
                if self._take(name, value, thread):
                    held.append(name)
        except BaseException:
            self.give_back(held, thread)
            raise
        return held

    def give_back(self, names: list[str], thread: int) -> None:
        """Put variables back, once no other thread has them set."""
        for name in names:
            self._give_back(name, thread)

    def theirs(self, name: str) -> str | None:
        """Return what a variable is but for the builds that are under way."""
        with self._lock:
            value = os.environ.get(name)
            ours, before, _ = self._set.get(name, (None, None, ()))
            return before if name in self._set and value == ours else value

    def _take(self, name: str, value: str, thread: int) -> bool:
        if not self._heeds_forks and hasattr(os, "register_at_fork"):
            self._heeds_forks = True  # only now: Python does not take it away again
            os.register_at_fork(after_in_child=self._forked)
        with self._lock:
            ours, before, holders = self._set.get(name, (value, os.environ.get(name), ()))
            if holders and os.environ.get(name) != ours:
                return False  # changed by somebody else while another thread builds: theirs now
            # In this order: whoever is forked between the two finds what to put back.
            self._set[name] = ours, before, (*holders, thread)
            if not holders:
                os.environ[name] = value
            return True

    def _give_back(self, name: str, thread: int) -> None:
        with self._lock:
            ours, before, holders = self._set[name]
            rest = list(holders)
            rest.remove(thread)
            self._leave_to(name, ours, before, tuple(rest))

    def _leave_to(self, name: str, ours: str, before: str | None, holders: tuple[int, ...]) -> None:
        if holders:
            self._set[name] = ours, before, holders
            return
        if os.environ.get(name) == ours:
            if before is None:
                del os.environ[name]
            else:
                os.environ[name] = before
        del self._set[name]

    def _forked(self) -> None:
        """Put back in a forked process what was set by threads that it does not have."""
        self._lock = allocate_lock()  # one of them may have had it
        here = get_ident()
        for name, (ours, before, holders) in list(self._set.items()):
            self._leave_to(name, ours, before, tuple(one for one in holders if one == here))


class _During:
    """Has variables set inside its block.

    Not made by `contextlib`, which writes to the errors that pass: some let nobody do that.
    """

    def __init__(self, variables: Variables, values: Mapping[str, str]) -> None:
        self._variables, self._values = variables, values
        self._held: list[str] = []
        self._thread = 0

    def __enter__(self) -> None:
        self._thread = get_ident()
        self._held = self._variables.take(self._values, self._thread)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._variables.give_back(self._held, self._thread)


VARIABLES = Variables()  # those of this process


def take_over(path: str, of: Identity) -> int | None:
    """Replace a lock that nobody holds by one of our own, in one step.

    Others that wait for the lock never see it gone: they would take that for a finished build.

    Args:
        path: The lock.
        of: The one that nobody holds, see `cudaguard.features.builds.locks.identity`.

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
        found = json.loads(read_bytes(os.path.join(folder, STAMP), 1 << 20))
    except (OSError, ValueError, RecursionError):
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
    # For all who share the folder: it is no secret.
    write_text(new, json.dumps(dict(stamp), indent=1), mode=0o666)
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
