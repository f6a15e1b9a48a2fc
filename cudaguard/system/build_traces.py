"""The torch that an extension was built against, as far as the file has kept traces of it.

Assertions in torch's headers leave the path of the header: that is the environment in which the
extension was compiled.
"""

from __future__ import annotations

import re

from cudaguard.files import ours, read_start

_HEADER = re.compile(rb'[\0"](/[!-~]{1,400}?)/torch/include/')
_MOST = 1 << 25  # the code of a large extension comes after its constants at times


def torch_folder(path: str) -> str:
    """Return the folder of the torch that an extension was built against, empty if unknown."""
    try:
        match = _HEADER.search(read_start(path, _MOST))
    except ours(OSError, ValueError):
        return ""
    return f"{match[1].decode('ascii')}/torch" if match else ""
