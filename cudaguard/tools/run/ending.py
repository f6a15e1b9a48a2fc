"""How a supervised program ended, and how the command ends then: in the same way."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType
    from typing import NoReturn

    from cudaguard.system.processes import ForkedWait

TIME_IS_UP = 124  # exit status, as of `timeout`
_ENDING = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")


class ProgramEnd(NamedTuple):
    """How the program has ended.

    Args:
        pid: Its process id.
        status: Its exit status; the negative number of the signal that has killed it.
        is_late: True if it was ended because its time was up.
        sent: Signals that were handed on to it.
        seconds: How long it ran, or was let run.
        waits: What forks waited for when the time was up, where that is certain.
    """

    pid: int
    status: int
    is_late: bool
    sent: frozenset[int]
    seconds: float
    waits: tuple[ForkedWait, ...] = ()


class InterruptedReportError(BaseException):
    """A signal wants the command to end at once; what it says is the name of the signal."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Have signals that end a process end what is done inside.

    Raises:
        InterruptedReportError: One came. They are blocked again then, as before.
    """

    def interrupt(number: int, _: FrameType | None) -> NoReturn:
        raise InterruptedReportError(signal.Signals(number).name)

    numbers = [getattr(signal, name) for name in _ENDING if hasattr(signal, name)]
    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        for number, handler in zip(numbers, before):
            signal.signal(number, handler)


def end_as(ended: ProgramEnd) -> int:
    """End this process by the signal that the program died of; else return the exit status."""
    if ended.is_late:
        return TIME_IS_UP
    if ended.status >= 0:
        return ended.status
    number = -ended.status
    flush()
    _forbid_core_file()
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    return 128 + number  # the first process of a container does not die of its own signals


def flush() -> None:
    """Write out what this process has printed; one that was started without streams has none."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):  # nobody reads it any more
            continue


def _forbid_core_file() -> None:
    """The core file is the program's, and there may be one already: none of this process."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    # 1 and not 0: where core files are piped to a program, 0 forbids nothing (core(5)).
    resource.setrlimit(resource.RLIMIT_CORE, (0 if most == 0 else 1, most))
