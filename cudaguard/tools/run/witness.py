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
from time import monotonic

from cudaguard.system.processes import end_with

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudaguard.system.processes import Prctl

_PATIENCE = 0.05  # seconds that may lie between the signals of one call
_STALE = 1.0  # seconds after which a note is of an earlier one
_NOTE = Struct("<Bd")  # number, time


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

    def has_seen(self, number: int) -> bool:
        """Return True if the witness has got a signal that we have just got."""
        while select.select([self._file], [], [], _PATIENCE)[0]:
            note = os.read(self._file, _NOTE.size)
            if not note:  # it was killed
                return False
            seen, when = _NOTE.unpack(note)
            if seen == number and monotonic() - when < _STALE:
                return True
        return False

    def dismiss(self) -> None:
        """End the witness."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._file)
