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
        unwritable: Called with the path and the error when the file cannot be written.
    """

    def __init__(self, unwritable: Callable[[str, Exception], None]) -> None:
        # Tuples: an Event costs several times as much, and hardly any is ever looked at.
        self._seen: deque[tuple[str, str, float, int, str]] = deque(maxlen=MEMORY_LIMIT)
        self._unwritable = unwritable
        self._asked = ""
        self._path = ""
        self._dumps: Callable[[object], str] = str

    @property
    def events(self) -> tuple[Event, ...]:
        """What was noted, oldest first."""
        return tuple(Event(*event) for event in self._seen.copy())

    @property
    def is_written(self) -> bool:
        """Are events copied to a file?"""
        return bool(self._path)

    def note(self, kind: str, name: str, where: str = "") -> None:
        """Record one event; never raises."""
        event = (kind, name, time(), get_ident(), where)
        self._seen.append(event)
        if self._path:
            self._write(Event(*event))

    def write_to(self, path: str) -> None:
        """Copy every later event to a file; ``%p`` is the process id, "" stops the copying."""
        if path == self._asked:
            return
        self._asked, self._path = path, ""
        if path:
            # Now, not at the first event: that may come in the middle of any import.
            from json import dumps

            self._dumps = dumps
            try:
                self._path = os.path.abspath(os.path.expanduser(path))  # the program may chdir
            except OSError as error:  # the working directory is gone
                self._unwritable(path, error)

    def _write(self, event: Event) -> None:
        # Opened for each line: a descriptor that is kept may be closed behind our back, as
        # daemons close all of them, and its number then belongs to a file of the program.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
        pid = os.getpid()
        path = self._path.replace("%p", str(pid))
        try:
            line = self._dumps({"pid": pid, **event.to_dict()}) + "\n"
            descriptor = os.open(path, flags, 0o644)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)
        except Exception as error:
            self._path = ""
            self._unwritable(path, error)
