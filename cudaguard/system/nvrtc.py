"""Which copies of NVRTC there are, and which one serves torch: by files, nothing is loaded.

The release of a copy is in the name of the library that lies beside it,
``libnvrtc-builtins.so.12.8``: to load one for asking would have it serve the whole process.

Source: NVRTC documentation, "Basic Usage"; how NVIDIA's and PyTorch's wheels are laid out.
"""

from __future__ import annotations

import re
import sys
from glob import escape, glob
from typing import NamedTuple

from cudaguard.elf.loaded import first_entry, loaded_libraries
from cudaguard.elf.memory import Memory
from cudaguard.elf.process import at_start
from cudaguard.elf.reader import ElfFile, read_elf
from cudaguard.elf.search_path import Place, SearchPath, fits
from cudaguard.files import os, ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_NVRTC = "libnvrtc"
# What of torch is linked against NVRTC, and opened together with it.
_TORCH_PART = "libcaffe2_nvrtc.so"
_BUILTINS = re.compile(r"libnvrtc-builtins(?:-[0-9a-f]+)?\.so\.(\d+)\.(\d+)(?:\.\d+)?")
_FILE = re.compile(r"libnvrtc\.so\.(\d+)\.(\d+)\.\d+")  # as toolkits name it
_HASH = re.compile(r"-[0-9a-f]{8}(?=\.so)")  # in older wheels of PyTorch
_TOOLKITS = ("/usr/local/cuda*", "/opt/cuda*", "/usr/lib/*-linux-gnu", "/usr/lib64")
_LIBRARIES = ("", "lib64", "lib", "targets/*/lib")


class Nvrtc(NamedTuple):
    """A copy of NVRTC.

    Args:
        path: Its file.
        name: What it is asked for by: ``libnvrtc.so.12``.
        release: The release of CUDA that it belongs to, as in (12, 8); None if not known.
    """

    path: str
    name: str
    release: tuple[int, int] | None


def mapped_copies() -> list[Nvrtc]:
    """Return the copies in this process; of one name the first serves all who ask for it."""
    try:
        with Memory() as memory:
            libraries = loaded_libraries(memory, first_entry())
    except ours(OSError):
        return []
    return [
        _copy(library.path)
        for library in libraries
        if os.path.basename(library.path).startswith((f"{_NVRTC}.so", f"{_NVRTC}-"))
        and not _BUILTINS.match(os.path.basename(library.path))
    ]


def copy_for(torch: str) -> Nvrtc | None:
    """Return the copy that serves torch, or will once code is compiled at run time.

    Args:
        torch: The folder of the package.
    """
    asking = os.path.join(torch, "lib", _TORCH_PART)
    name = next((n for n in read_elf(asking).needed if n.startswith(_NVRTC)), "")
    if not name:
        return None
    plain = _HASH.sub("", name)
    served = next((copy for copy in mapped_copies() if copy.name in (name, plain)), None)
    if served is not None:
        return served
    # torch asks for the plain name first.
    with ElfFile(asking) as file:
        place, search = Place(asking, file, None), SearchPath(())
    path = search.find(plain, place) or search.find(name, place)
    return _copy(path) if path else None


def installed_copies(soname: str) -> list[Nvrtc]:
    """Return the copies of a name that are installed: NVIDIA's wheels, toolkits, the system's.

    Args:
        soname: As in ``libnvrtc.so.12``.
    """
    found: dict[str, Nvrtc] = {}
    for folder in _folders():
        for path in sorted(glob(os.path.join(folder, escape(soname)))):
            if not fits(path):  # a toolkit may have a folder for builds for another machine
                continue
            copy = _copy(path)
            found.setdefault(copy.path, copy)
    return [copy for copy in found.values() if copy.name == soname]


def builtins_of(copy: Nvrtc) -> tuple[str, ...]:
    """Return the library that a copy opens when it compiles, if it lies beside it.

    That of CUDA 13.0's wheel does not look there, and fails unless somebody has opened it.
    """
    if copy.release is None:
        return ()
    name = f"libnvrtc-builtins.so.{copy.release[0]}.{copy.release[1]}"
    path = os.path.join(os.path.dirname(copy.path), name)
    return (path,) if os.path.exists(path) else ()


def _folders() -> Iterator[str]:
    for entry in sys.path:
        if isinstance(entry, str):
            yield os.path.join(escape(entry or os.getcwd()), "nvidia", "*", "lib")
    homes = [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX")]
    homes += at_start("LD_LIBRARY_PATH").split(":")
    for home in (*(escape(home) for home in (*homes, sys.prefix) if home), *_TOOLKITS):
        for part in _LIBRARIES:
            yield os.path.join(home, part)


def _copy(path: str) -> Nvrtc:
    path = os.path.realpath(path)
    return Nvrtc(path, read_elf(path).soname or os.path.basename(path), _release(path))


def _release(path: str) -> tuple[int, int] | None:
    match = _FILE.fullmatch(os.path.basename(path))
    if match is not None:
        return int(match[1]), int(match[2])
    try:
        names = os.listdir(os.path.dirname(path))
    except ours(OSError):
        return None
    releases = {(int(m[1]), int(m[2])) for m in map(_BUILTINS.fullmatch, names) if m is not None}
    return releases.pop() if len(releases) == 1 else None
