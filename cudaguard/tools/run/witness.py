"""Tells whether a signal was sent to us alone, or to everyone around us.

The kernel does not say. ``kill -TERM -GROUP``, a shell's ``kill %1``, systemd and batch systems
send to all, so the program has the signal already, and a second one may mean "at once" to it. So a
process that does nothing else stands beside us: what it gets as well was sent to all.
"""

from __future__ import annotations

import os
import select
import signal
from struct import Struct
from time import monotonic, sleep

from cudaguard.system.processes import end_with

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudaguard.system.processes import Prctl

_PATIENCE = 0.05  # seconds that may lie between the signals of one call
_NOTE = Struct("<Bd")  # number, time


class Relay:
    """Signals on their way to the program: each waits until it is known who got it.

    They wait side by side, so that many in a row reach the program as they came.

    Args:
        witness: Tells who got them; None where there is none, and all were sent to us alone.
    """

    def __init__(self, witness: Witness | None) -> None:
        self.witness = witness
        self._held: list[tuple[int, float]] = []

    def receive(self, number: int) -> None:
        """Take a signal that a process has sent to us, or to all."""
        self._held.append((number, monotonic()))

    def patience(self, otherwise: float) -> float:
        """Return in how many seconds the next is due; something else if none waits."""
        return max(0.0, self._held[0][1] + _PATIENCE - monotonic()) if self._held else otherwise

    def due(self) -> Iterator[int]:
        """Yield the signals that are due and were sent to us alone."""
        while not self.patience(1.0):
            number, when = self._held.pop(0)
            if self.witness is None or not self.witness.has_seen(number, when):
                yield number

    def left(self) -> list[int]:
        """Return what was sent to us alone, once that is known."""
        found: list[int] = []
        while self._held:
            sleep(self.patience(0.0))
            found += self.due()
        return found


class Witness:
    """A sibling of the program in the same process group, which tells what signals it gets.

    Made after the descriptors handed down were let go of, with all signals blocked.

    Args:
        signals: Those to look at.
        prctl: The system call, with which the witness does not outlive us.

    Raises:
        OSError: There can be no further process or pipe.
    """

    def __init__(self, signals: Iterable[int], prctl: Prctl) -> None:
        self._seen: list[tuple[int, float]] = []
        self._file, end = os.pipe()
        parent = os.getpid()
        try:
            self.pid = os.fork()
        except OSError:
            os.close(self._file)
            os.close(end)
            raise
        if not self.pid:
            try:
                os.dup2(0, 2)  # standard input is /dev/null by now
                end_with(parent, prctl, 0)
                signals = set(signals) - {signal.SIGCHLD}
                while os.getppid() == parent:
                    info = signal.sigwaitinfo(signals)
                    if info.si_code <= 0:  # by a process; others are the terminal's
                        os.write(end, _NOTE.pack(info.si_signo, monotonic()))
            finally:
                os._exit(0)
        os.close(end)

    def has_seen(self, number: int, when: float) -> bool:
        """Return True if the witness has got a signal about when we have got it."""
        while select.select([self._file], [], [], 0)[0]:
            note = os.read(self._file, _NOTE.size)
            if not note:  # it was killed
                break
            self._seen.append(_NOTE.unpack(note))
        self._seen = [(n, seen) for n, seen in self._seen if seen > when - _PATIENCE]
        return any(n == number and seen < when + _PATIENCE for n, seen in self._seen)

    def dismiss(self) -> None:
        """End the witness."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._file)
