"""The record of what was seen: in memory always, in a crash-safe file on request.

The file gets one JSON object per line. Each line is one ``write`` to a descriptor opened with
``O_APPEND``, so lines of several processes never mix and a killed process loses nothing that
it had written. A file that cannot be written is given up after one report.
"""

from __future__ import annotations

import os
from _collections import deque  # type: ignore[import-not-found]  # light: `collections` is not
from _thread import get_ident
from time import time

from cudaguard.model import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MEMORY_LIMIT = 10_000  # events


class Journal:
    """Events of this process, and the file they are copied to.

    Args:
        broken: Called with a sentence and the error when the file cannot be written.
    """

    def __init__(self, broken: Callable[[str, Exception], None]) -> None:
        # Tuples: an Event costs several times as much, and hardly any is ever looked at.
        self._seen: deque[tuple[str, str, float, int, str]] = deque(maxlen=MEMORY_LIMIT)
        self.pattern = ""
        self._broken = broken
        self._dumps: Callable[[object], str] = str
        self._descriptor = -1
        self._opened_by = 0

    @property
    def events(self) -> tuple[Event, ...]:
        """What was noted, oldest first."""
        return tuple(Event(*event) for event in self._seen.copy())

    def note(self, kind: str, name: str, where: str = "") -> None:
        """Record one event; never raises."""
        event = (kind, name, time(), get_ident(), where)
        self._seen.append(event)
        if self.pattern:
            self._write(Event(*event))

    def write_to(self, pattern: str) -> None:
        """Copy every later event to a file; ``%p`` is the process id, "" stops the copying."""
        if pattern != self.pattern:
            self._close()
            if pattern:
                # Now, not at the first event: that may come in the middle of any import.
                from json import dumps

                self._dumps = dumps
            self.pattern = pattern

    def _write(self, event: Event) -> None:
        pid = os.getpid()
        try:
            if self._opened_by != pid:  # first event, or a forked child with its own file
                self._close()
                path = os.path.expanduser(self.pattern).replace("%p", str(pid))
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
                self._descriptor = os.open(path, flags, 0o644)
                self._opened_by = pid
            line = self._dumps({"pid": pid, **event.to_dict()}) + "\n"
            os.write(self._descriptor, line.encode())
        except Exception as error:
            pattern, self.pattern = self.pattern, ""
            self._close()
            self._broken(f"the journal {pattern} cannot be written and is given up", error)

    def _close(self) -> None:
        # In a forked child this closes the inherited copy only; the parent's stays open.
        descriptor, self._descriptor, self._opened_by = self._descriptor, -1, 0
        if descriptor >= 0:
            try:
                os.close(descriptor)
            except OSError:  # closed behind our back, as daemons do with all descriptors
                pass
