"""Open libraries of installed packages before somebody finds another copy, or none.

The first mapped library of a name serves everyone who asks for that name later, wherever its file
lies; an absolute path decides which one that is. Nothing is opened where a library of the name is
there already: it would be mapped beside the other one and help nobody.

Source: ``dlopen(3)``; how nvidia's wheels are laid out: ``nvidia/<part>/lib``.
"""

from __future__ import annotations

import os
import sys
from glob import glob

from cudaguard.probe.elf import needed_libraries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Where the wheels that bring CUDA's libraries have them, below a folder of sys.path.
CUDA_FOLDERS = os.path.join("nvidia", "*", "lib")
# Made by the kernel's half of the driver; the second one under Windows' Linux.
DRIVER_FILES = ("/dev/nvidiactl", "/dev/dxg")
LOADER_CACHE = "/etc/ld.so.cache"


def preload(pattern: str) -> tuple[str, ...]:
    """Open the libraries that a pattern finds, each name once, the first folder of sys.path first.

    Args:
        pattern: Relative to the folders of sys.path: ``nvidia/nccl/lib/libnccl.so.2``.

    Returns:
        The files that were opened.

    Raises:
        OSError: The loader refuses one of them.
    """
    found: dict[str, str] = {}
    for file in _installed(pattern):
        found.setdefault(os.path.basename(file), file)
    return _open(file for name, file in found.items() if not _is_mapped(name))


def preload_needs(library: str) -> tuple[str, ...]:
    """Open what a library needs and the loader would not find, from the wheels that have it.

    Args:
        library: Relative to the folders of sys.path; nothing is done where it is not installed.

    Returns:
        The files that were opened.

    Raises:
        OSError: The loader refuses one of them.
    """
    asking = next(_installed(library), None)
    found: dict[str, str] = {}
    todo = [asking] if asking else []
    while todo:
        for name in needed_libraries(todo.pop()):
            if name not in found and not _is_mapped(name) and not _is_findable(name):
                file = next(_installed(os.path.join(CUDA_FOLDERS, name)), None)
                if file is not None:
                    found[name] = file
                    todo.append(file)
    return _open(found.values())


def has_driver() -> bool:
    """Is there an NVIDIA driver on this machine? Nothing of it is loaded to find out."""
    return any(os.path.exists(file) for file in DRIVER_FILES)


def _installed(pattern: str) -> Iterator[str]:
    for entry in sys.path:
        if isinstance(entry, str) and entry:
            yield from sorted(glob(os.path.join(entry, pattern)))


def _is_mapped(name: str) -> bool:
    """Is a library of this name in the process, by its own name or by that of its file?"""
    import _ctypes

    try:
        _ctypes.dlclose(_ctypes.dlopen(name, os.RTLD_NOLOAD | os.RTLD_LAZY))
    except OSError:
        return False
    return True


def _is_findable(name: str) -> bool:
    """Would the loader find the library in its cache or by LD_LIBRARY_PATH?"""
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    if any(folder and os.path.exists(os.path.join(folder, name)) for folder in folders):
        return True
    try:
        with open(LOADER_CACHE, "rb") as file:
            return os.fsencode(f"/{name}") + b"\0" in file.read()
    except OSError:
        return False


def _open(files: Iterable[str]) -> tuple[str, ...]:
    """Open the files in an order in which each finds what it needs."""
    import _ctypes

    left, opened = list(files), []
    while left:
        refused, error = [], None
        for file in left:
            try:
                _ctypes.dlopen(file, os.RTLD_NOW)
            except OSError as reason:
                refused.append(file)
                error = reason
            else:
                opened.append(file)
        if error is not None and len(refused) == len(left):
            raise error
        left = refused
    return tuple(opened)
