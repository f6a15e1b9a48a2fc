"""The folder in which the processes below ``cudaguard run`` keep the record of what they do."""

from __future__ import annotations

import os

from cudaguard.core.record import JOURNAL
from cudaguard.files import open_to_write, write_text
from cudaguard.tools.scratch import Scratch

_ROOM = 1 << 14  # bytes; more than one line of the record


class RunRecord:
    """A new, private, temporary folder.

    Attributes:
        folder: Its path; empty where none can be made (a full disk), and no record is kept.
        lock: The descriptor that keeps it from being taken for abandoned; -1 without a folder.
    """

    def __init__(self) -> None:
        # As `tempfile` does, which would be most of what this process imports.
        parent = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108  # the name is not to be guessed
        self.folder, self.lock = "", -1
        self._scratch: Scratch | None = None
        self._problem = ""
        try:
            self._scratch = Scratch("run", parent)
            path = os.path.join(self._scratch.folder, JOURNAL)
            os.close(open_to_write(path, os.O_CREAT | os.O_EXCL))
        except OSError as error:
            self._problem = str(error)
            self.remove()
        else:
            self.folder, self.lock = self._scratch.folder, self._scratch.lock

    def problem(self) -> str:
        """Return why something may be missing from the record, or an empty string."""
        if self.folder:
            try:  # a process that cannot write gives its record up without a word
                write_text(os.path.join(self.folder, "room"), " " * _ROOM)
            except OSError as error:
                return str(error)
            if not os.path.exists("/proc/self/maps"):
                return "there is no /proc that would tell what is mapped"
        return self._problem

    def remove(self) -> None:
        """Delete the folder; processes that go on after the program do without a record."""
        if self._scratch is not None:
            self._scratch.close()
