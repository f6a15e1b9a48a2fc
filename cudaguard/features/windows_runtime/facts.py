"""Copies of the C++ runtime: which one this process has, and which ones there are."""

from __future__ import annotations

import sys
from contextlib import suppress

from cudaguard.features.windows_runtime.policy import Copy
from cudaguard.files import LARGEST, os, own_errors, read_bytes
from cudaguard.system.pe import read_pe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_LONGEST = 1 << 10  # characters of a path
_MOST = 64  # files of a package that are looked at


def mapped(name: str) -> str:
    """Return the file of a library that is loaded; empty if it is not."""
    kernel = _kernel32()
    kernel.GetModuleHandleW.restype = kernel.GetModuleFileNameW.argtypes[0]
    handle = kernel.GetModuleHandleW(name)
    return _file_of(kernel, handle) if handle else ""


def _kernel32() -> Any:
    """Return functions of Windows that are ours alone: a program declares types of its own."""
    import ctypes

    kernel: Any = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined,unused-ignore]  # Windows
    kernel.GetModuleFileNameW.argtypes = (ctypes.c_void_p, ctypes.c_wchar_p, ctypes.c_uint32)
    return kernel


def _file_of(kernel: Any, handle: int | None) -> str:
    import ctypes

    text = ctypes.create_unicode_buffer(_LONGEST)
    kernel.GetModuleFileNameW(handle, text, _LONGEST)
    return text.value


def copies(name: str) -> Iterator[Copy]:
    """Yield the copies of a library for this kind of processor; Windows' own first."""
    import ctypes

    kernel = _kernel32()
    program = _file_of(kernel, None)
    system = ctypes.create_unicode_buffer(_LONGEST)
    kernel.GetSystemDirectoryW(system, _LONGEST)
    machine = read_pe(program).machine
    places = [(system.value, "Windows"), (os.path.dirname(program), "Python's folder")]
    found = [(os.path.join(folder, name), owner) for folder, owner in places]
    for path, owner in (*found, *in_wheels(name, sys.path)):
        file = read_pe(path)
        if file.machine == machine:
            yield Copy(file.version, path, owner)


def in_wheels(name: str, folders: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (file, distribution) of the files of exactly that name that wheels have listed."""
    wanted = name.encode()
    for folder in dict.fromkeys(folders):
        try:
            infos = [one for one in os.listdir(folder or ".") if one.endswith(".dist-info")]
        except own_errors(OSError):  # a zip file, or nothing at all
            continue
        for info in infos:
            try:
                record = read_bytes(os.path.join(folder, info, "RECORD"), LARGEST)
            except own_errors(OSError):
                continue
            # Most lists are large and do not have it.
            for line in record.splitlines() if wanted in record.lower() else ():
                path = line.split(b",")[0].decode("utf-8", "replace").strip('"')
                if path.rpartition("/")[2].lower() == name:
                    yield os.path.normpath(os.path.join(folder, path)), info.partition("-")[0]


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

    ctypes.WinDLL(path)  # type: ignore[attr-defined,unused-ignore]  # Windows
    folder, machine = os.path.dirname(path), read_pe(path).machine
    for name in sorted(os.listdir(folder)):
        file = os.path.join(folder, name)
        is_of_it = name.lower().startswith(family) and name.lower().endswith(".dll")
        # PySide6 6.6 has a concrt140.dll for 32 bits beside others for 64.
        if is_of_it and not mapped(name) and read_pe(file).machine == machine:
            with suppress(OSError):
                ctypes.WinDLL(file)  # type: ignore[attr-defined,unused-ignore]
