"""The folder in which the processes below ``cudaguard run`` keep the record of what they do."""

from __future__ import annotations

import os

from cudaguard.hook.record import JOURNAL


class Record:
    """A new, private, temporary folder.

    Attributes:
        folder: Its path; empty where none can be made (a full disk), and no record is kept.
    """

    def __init__(self) -> None:
        # As `tempfile` does, which would be most of what this process imports.
        parent = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108  # the name is not to be guessed
        self.folder = ""
        path = os.path.join(os.path.abspath(parent), f"cudaguard-run-{os.urandom(8).hex()}")
        try:
            os.mkdir(path, 0o700)
            self.folder = path
            os.close(os.open(os.path.join(path, JOURNAL), os.O_CREAT | os.O_EXCL, 0o600))
        except OSError:
            self.remove()
            self.folder = ""

    def remove(self) -> None:
        """Delete the folder; processes that go on after the program do without a record."""
        if not self.folder:
            return
        try:
            for name in os.listdir(self.folder):
                os.unlink(os.path.join(self.folder, name))
            os.rmdir(self.folder)
        except OSError:  # one of those processes has just begun a file; or /tmp was cleaned
            return
