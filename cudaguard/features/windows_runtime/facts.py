"""Copies of the C++ runtime: which one this process has, and which ones there are."""

from __future__ import annotations

import re
import sys
from contextlib import suppress

from cudaguard.features.windows_runtime.policy import Copy
from cudaguard.files import os, own_errors
from cudaguard.system.pe import in_wheels, read_pe, system_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_MOST = 64  # files of a package that are looked at


def mapped(name: str) -> str:
    """Return the file of a library that is loaded; empty if it is not."""
    import ctypes

    windll: Any = ctypes.WinDLL  # type: ignore[attr-defined,unused-ignore]  # on Windows only
    handle_of = windll("kernel32").GetModuleHandleW  # not the program's, which has its own types
    handle_of.restype = ctypes.c_void_p
    handle = handle_of(name)
    return _file_of(handle) if handle else ""


def _file_of(handle: int) -> str:
    import _winapi

    file: str = _winapi.GetModuleFileName(handle)  # type: ignore[attr-defined,unused-ignore]
    return file


def copies(name: str) -> Iterator[Copy]:
    """Yield the copies of a library for this kind of processor; Windows' own first."""
    program = _file_of(0)
    places = ((system_folder(), "Windows"), (os.path.dirname(program), "Python's folder"))
    found = [(os.path.join(folder, name), owner) for folder, owner in places]
    machine = read_pe(program).machine
    for path, owner in (*found, *in_wheels(re.escape(name), sys.path)):
        file = read_pe(path)
        if file.machine == machine:
            yield Copy(file.version, path, owner)


def package_of(file: str) -> str:
    """Return the package in whose folder a file is; empty if it is in none on ``sys.path``."""
    for folder in sys.path:
        if folder and file.lower().startswith(folder.lower() + os.sep):
            parts = file[len(folder) + 1 :].split(os.sep)
            if parts[1:] and parts[0].isidentifier():
                return parts[0]
    return ""


def client_in(folder: str) -> str:
    """Return a library of a package that needs a new runtime; empty if it has none."""
    files: list[str] = []
    for place in (os.path.join(folder, "lib"), folder):
        try:
            names = sorted(os.listdir(place))
        except own_errors(OSError):
            continue
        files += [os.path.join(place, one) for one in names if one.endswith((".dll", ".pyd"))]
    return next((file for file in files[:_MOST] if read_pe(file).locks_without_init), "")


def load(path: str, family: tuple[str, ...]) -> None:
    """Load a library by its path, and what beside it belongs to it and is not loaded yet.

    Raises:
        OSError: The loader refuses the first.
    """
    import ctypes

    windll: Any = ctypes.WinDLL  # type: ignore[attr-defined,unused-ignore]
    windll(path)
    folder, machine = os.path.dirname(path), read_pe(path).machine
    for name in sorted(os.listdir(folder)):
        file = os.path.join(folder, name)
        is_of_it = name.lower().startswith(family) and name.lower().endswith(".dll")
        # PySide6 6.6 has a concrt140.dll for 32 bits beside others for 64.
        if is_of_it and not mapped(name) and read_pe(file).machine == machine:
            with suppress(OSError):
                windll(file)
