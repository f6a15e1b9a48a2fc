"""Pseudo-terminals with a command on them."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time

# The first process of a session takes the terminal, as a login does.
LOGIN = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


class Terminal:
    """A pseudo-terminal with a command on it."""

    def __init__(self, start, *command, columns=100):
        self.master, slave = pty.openpty()
        self.resize(30, columns)
        self.process = start(
            sys.executable, "-c", LOGIN, *command,
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        self.text = ""

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text):
        os.write(self.master, text.encode())

    def read(self, seconds):
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:  # everyone has let go of it
            return False
        self.text += data.decode(errors="replace").replace("\r", "")
        return bool(data)

    def expect(self, text, seconds=15):
        """Wait for some text and drop all up to it."""
        end = time.monotonic() + seconds
        while text not in self.text:
            assert self.read(0.1) or time.monotonic() < end, f"no {text!r} in {self.text!r}"
        self.text = self.text.partition(text)[2]

    def rest(self):
        while self.read(2):
            pass
        return self.text

    def whole(self, seconds=60):
        """Return all that is shown until the command ends."""
        end = time.monotonic() + seconds
        while self.read(0.1) or self.process.poll() is None:
            assert time.monotonic() < end, f"still running: {self.text!r}"
        return self.text
