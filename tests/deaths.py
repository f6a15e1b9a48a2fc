"""Ways in which a worker of a tested program dies, and what `cudaguard run` says of each."""

from __future__ import annotations

import platform
import re

# Does the kernel tell others than the parent how a process has ended?
LINUX_TELLS = [int(one) for one in re.findall(r"\d+", platform.release())[:2]] >= [6, 15]

FAULT = """\
import ctypes, mmap, os, tempfile

def die(how):
    if how == "SIGSEGV":
        ctypes.string_at(0)
    if how == "SIGBUS":
        with tempfile.TemporaryFile() as file:
            file.truncate(1)
            memory = mmap.mmap(file.fileno(), 1)
            file.truncate(0)
            memory[0]
    if how == "SIGKILL":
        os.kill(os.getpid(), 9)
    if how == "import":
        import missing_package
"""
SAID = {
    "SIGSEGV": "crashed (SIGSEGV) in die, at fault.py:5",
    "SIGBUS": "crashed (SIGBUS) in die, at fault.py:11",
    "SIGKILL": "was killed (SIGKILL) after ",  # what its journal has last
    "import": "ended with ModuleNotFoundError in die, at fault.py:15",
}
