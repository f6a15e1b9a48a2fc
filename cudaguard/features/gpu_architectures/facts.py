"""Which assemblers for GPUs (ptxas) there are: Triton's own, wheels', toolkits'. None is run.

The release stands in the program itself, as it prints it: ``release 12.8``.

Source: CUDA binary utilities; ``triton/backends/nvidia/bin``.
"""

from __future__ import annotations

import os
import re
import sys
from glob import escape, glob
from mmap import ACCESS_READ, mmap

from cudaguard.files import open_to_read, ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME = "ptxas"
_START, _LONGEST = b"Cuda compilation tools, release ", 64
_RELEASE = re.compile(rb"release (\d+)\.(\d+)")


def own_of_triton(triton: str) -> dict[str, str]:
    """Return name -> file of each ptxas that Triton brings.

    Args:
        triton: The folder of the package.
    """
    folder = os.path.join(escape(triton), "backends", "nvidia", "bin")
    return {os.path.basename(path): path for path in glob(os.path.join(folder, f"{_NAME}*"))}


def installed_elsewhere() -> list[str]:
    """Return every ptxas of NVIDIA's wheels, of toolkits and on PATH."""
    paths = {os.path.realpath(path): path for path in _places() if os.path.isfile(path)}
    return list(paths.values())


def release_of(path: str) -> tuple[int, int] | None:
    """Return the release of CUDA that a ptxas belongs to; None if it does not say."""
    try:
        file = open_to_read(path)
        try:
            with mmap(file, 0, access=ACCESS_READ) as data:
                place = data.find(_START)
                text = data[place : place + _LONGEST] if place >= 0 else b""
        finally:
            os.close(file)
    except ours(OSError, ValueError):
        return None
    match = _RELEASE.search(text)
    return None if match is None else (int(match[1]), int(match[2]))


def _places() -> Iterator[str]:
    for entry in sys.path:
        if isinstance(entry, str):
            folder = escape(entry or os.getcwd())
            yield from sorted(glob(os.path.join(folder, "nvidia", "*", "bin", _NAME)))
    homes = [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX")]
    homes += [*sorted(glob("/usr/local/cuda*")), *sorted(glob("/opt/cuda*"))]
    yield from (os.path.join(home, "bin", _NAME) for home in (*homes, sys.prefix) if home)
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        yield os.path.join(folder, _NAME)
