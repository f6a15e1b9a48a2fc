"""Copies of the C++ runtime: which one this process has, and which ones there are."""

from __future__ import annotations

import sys

from cudaguard.elf.process import mapped_files
from cudaguard.files import names_in, os
from cudaguard.model import NamedTuple
from cudaguard.system.pe import in_wheels, read_pe, system_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

# Library -> its family, which must come from one folder: all clients can use the newest copy.
NEWEST_FOR_ALL = {"msvcp140.dll": ("msvcp140", "concrt140", "vcruntime140_threads")}
_MOST = 64  # files of a package that are looked at


class RuntimeCopy(NamedTuple):
    """A copy of a library: its file version, its path, and what it belongs to."""

    version: tuple[int, ...]
    path: str
    owner: str


def newest(copies: Iterable[RuntimeCopy]) -> RuntimeCopy | None:
    """Return the newest of some copies; of equal ones the first."""
    return max(copies, key=lambda copy: copy.version, default=None)


def mapped(name: str) -> str:
    """Return the file of a library that is loaded, of several the one that all use; else empty."""
    import ctypes  # noqa: F401  # by which it is seen

    return next((file for file in mapped_files() if os.path.basename(file).lower() == name), "")


def copies(name: str) -> Iterator[RuntimeCopy]:
    """Yield the copies of a library for this kind of processor; Windows' own first."""
    import _winapi

    program = str(_winapi.GetModuleFileName(0))  # type: ignore[attr-defined,unused-ignore]
    places = ((system_folder(), "Windows"), (os.path.dirname(program), "Python's folder"))
    found = ((os.path.join(folder, name), owner) for folder, owner in places)
    for path, owner in (*found, *in_wheels(name, sys.path)):
        file = read_pe(path)
        if file.machine == read_pe(program).machine:
            yield RuntimeCopy(file.version, path, owner)


def package_of(file: str) -> str:
    """Return the package in whose folder a file is; empty if it is in none on ``sys.path``."""
    same = os.path.normcase
    folders = [one for one in sys.path if one and same(file).startswith(same(one) + os.sep)]
    first = file[len(max(folders, key=len)) + 1 :].partition(os.sep)[0] if folders else ""
    return first if first.isidentifier() else ""


def client_in(path: str) -> str:
    """Return what needs a new runtime, of an extension or of a package; empty if nothing does."""
    folder = os.path.dirname(path)
    places = (os.path.join(folder, "lib"), os.path.join(folder, "capi"), folder)
    files = [os.path.join(place, one) for place in places for one in names_in(place)]
    libraries = [file for file in files if file.endswith((".dll", ".pyd"))][:_MOST]
    if path.endswith(".pyd"):
        libraries = [path, *(os.path.join(folder, one) for one in read_pe(path).imports)]
    return next((file for file in libraries if read_pe(file).locks_without_init), "")


def load(path: str, family: tuple[str, ...]) -> None:
    """Load a library by its path, and what beside it belongs to it and is not loaded yet."""
    import ctypes

    windll: Any = ctypes.WinDLL  # type: ignore[attr-defined,unused-ignore]
    windll(path)
    folder, machine = os.path.dirname(path), read_pe(path).machine
    for name in names_in(folder):
        if name.lower().startswith(family) and name.lower().endswith(".dll") and not mapped(name):
            file = os.path.join(folder, name)
            # PySide6 6.6 has a concrt140.dll for 32 bits beside others for 64.
            if read_pe(file).machine == machine:
                windll(file)
