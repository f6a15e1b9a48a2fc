"""Runs functions in a fork of this process, each with a time limit.

Whoever looks at a file may wait for ever: for a network disk whose server is gone, for somebody who
writes to a pipe. No signal but SIGKILL ends that, and a thread that waits so is never ended.
"""

from __future__ import annotations

import os
from time import monotonic, sleep
from typing import NamedTuple

from cudaguard.system.processes import end_with, waits_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, NoReturn

AFTERWARDS = 5.0  # seconds for each of the others, once one has waited too long
_PATIENCE = 1.0  # seconds for a killed process to be gone; some disks hold it nevertheless
_SIZE = 8  # bytes that tell how long an answer is


class NoAnswer(NamedTuple):
    """In place of what a function returns.

    Args:
        why: Why there is nothing, as in ``it has not ended within 30 s``.
        seconds: How long it was waited for.
        is_late: True if its time was up.
    """

    why: str
    seconds: float
    is_late: bool


def aside(tasks: Sequence[Callable[[], Any]], limit: float) -> Iterator[Any]:
    """Yield what each function returns, or `NoAnswer`; the others are run all the same.

    What they return is pickled, and what they change here is lost.

    Args:
        tasks: The functions. One that is stuck is given up together with its process, so that the
            next one finds nothing of what the others have kept for it.
        limit: Seconds for each.
    """
    if not hasattr(os, "fork"):
        yield from (task() for task in tasks)
        return
    import pickle

    left = list(tasks)
    while left:
        try:
            pid, answers = _fork(left)
        except OSError:  # no further process is allowed
            yield from (task() for task in left)
            return
        try:
            data: bytes | None = b"\0"
            while left and data:
                started = monotonic()
                data = _read(answers, started + limit)
                del left[0]
                if data:
                    yield pickle.loads(data)  # noqa: S301  # by ourselves
                else:
                    why = _why(pid, limit) if data is None else "its process has died"
                    yield NoAnswer(why, monotonic() - started, data is None)
            if data is None:
                limit = min(limit, AFTERWARDS)
        finally:
            os.close(answers)
            _end(pid)


def _fork(tasks: list[Callable[[], Any]]) -> tuple[int, int]:
    """Return a process that runs the functions, and the descriptor from which answers are read."""
    answers, end = os.pipe()
    own = os.getpid()
    try:
        pid = _fork_quietly()
    except OSError:
        os.close(answers)
        os.close(end)
        raise
    if not pid:
        _run(tasks, end, own)
    os.close(end)
    _lead(pid)
    return pid, answers


def _fork_quietly() -> int:
    """Return what ``os.fork`` does, and warn of no threads.

    An error that is made of that warning would be raised in the parent alone, and the child go on.
    """
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _run(tasks: list[Callable[[], Any]], end: int, parent: int) -> NoReturn:
    try:
        import pickle
        import signal

        end_with(parent)
        _lead(0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with os.fdopen(end, "wb") as file:
            for task in tasks:
                data = pickle.dumps(task())
                file.write(len(data).to_bytes(_SIZE, "big") + data)
                file.flush()
    finally:
        os._exit(0)  # whatever comes up to here: the other process goes on


def _lead(pid: int) -> None:
    """Make a process the leader of a group, so that it is ended with all it has started."""
    try:
        os.setpgid(pid, pid)
    except OSError:  # it is one already, or has ended
        return


def _read(answers: int, deadline: float) -> bytes | None:
    """Return one answer; nothing at the end of all, None at the deadline."""
    import select

    data, size = b"", _SIZE
    while len(data) < size:
        if not select.select([answers], [], [], max(deadline - monotonic(), 0))[0]:
            return None
        more = os.read(answers, size - len(data))
        if not more:
            return b""
        data += more
        if size == _SIZE and len(data) == _SIZE:
            size += int.from_bytes(data, "big")
    return data[_SIZE:]


def _why(pid: int, limit: float) -> str:
    file = waits_for(pid)
    waiting = f", waiting for {file}: does that disk, or pipe, answer?" if file else ""
    return f"it has not ended within {limit:g} s{waiting}"


def _end(pid: int) -> None:
    from signal import SIGKILL

    try:
        os.killpg(pid, SIGKILL)
    except OSError:  # it has ended by itself
        pass
    deadline = monotonic() + _PATIENCE
    while not os.waitpid(pid, os.WNOHANG)[0] and monotonic() < deadline:
        sleep(0.002)
