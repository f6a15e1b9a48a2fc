"""Where and by what an extension was built, as far as the file has kept traces of it.

The compiler leaves its name (``.comment``), and assertions in torch's headers the path of the
header: that is the environment in which the extension was compiled.
"""

from __future__ import annotations

import re

from cudaguard.files import ours, read_start

_HEADER = re.compile(rb'[\0"](/[!-~]{1,400}?)/torch/include/')
_COMPILER = re.compile(rb"GCC: \([^)\0]{0,80}\) ([0-9.]{1,12})")
_MOST = 1 << 25  # the code of a large extension comes after its constants at times


def torch_folder(path: str) -> str:
    """Return the folder of the torch that an extension was built against, empty if unknown."""
    match = _HEADER.search(_start_of(path))
    return f"{match[1].decode('ascii')}/torch" if match else ""


def compiler(path: str) -> str:
    """Return the version of GCC that has built it, empty if unknown."""
    found = _COMPILER.findall(_start_of(path))
    return found[-1].decode("ascii") if found else ""


def _start_of(path: str) -> bytes:
    try:
        return read_start(path, _MOST)
    except ours(OSError, ValueError):
        return b""
