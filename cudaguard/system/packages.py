"""Finds the installed package that a library belongs to."""

from __future__ import annotations

import sys

from cudaguard.files import os, ours, theirs
from cudaguard.system.distributions import metadata_library
from cudaguard.system.facts import bounded
from cudaguard.system.modules import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Packages:
    """The folders that packages lie in, as they are now."""

    def __init__(self) -> None:
        self._entries = [_inside(entry) for entry in sys.path if isinstance(entry, str)]
        # The innermost first: a virtual environment often lies in the working folder.
        self._entries.sort(key=len, reverse=True)
        # An editable install lies anywhere, and so does a folder that is linked.
        inside = tuple(os.path.join(e, "") for e in sys.path if isinstance(e, str) and e)
        self._others = [
            (name, _inside(place))
            for name, module in list(sys.modules.items())
            if isinstance(name, str) and "." not in name
            for folder in _folders(module)
            if os.path.islink(folder) or not folder.startswith(inside)
            for real in [_real(folder)]
            for place in (folder, real, f"{folder}.libs")
        ]

    def of(self, path: str) -> str:
        """Return the top-level package whose folders a library lies in, empty if none has it.

        ``decord/libdecord.so`` and ``decord.libs/libz.so``, where wheels keep what they bundle,
        both belong to ``decord``.

        Args:
            path: The library's file, links resolved.
        """
        for name, folder in self._others:
            if path.startswith(folder):
                return name
        for entry in self._entries:
            if path.startswith(entry):
                return path[len(entry) :].partition(os.sep)[0].partition(".")[0]
        return ""


def _inside(folder: str) -> str:
    """Return what the path of every file in a folder begins with."""
    return os.path.join(_real(folder), "")


def _real(folder: str) -> str:
    try:
        return os.path.realpath(folder)
    except ours(OSError, ValueError):  # the working directory is gone, or no path at all
        return folder


def _folders(module: object) -> list[str]:
    folders = peek(module, "__path__")
    # Only lists: the path of a namespace package asks foreign finders when it is read.
    return (
        [entry for entry in folders if isinstance(entry, str)] if isinstance(folders, list) else []
    )


# --- Where an import name would come from: Python itself, an installed package, the user's files.

STANDARD = "standard"
INSTALLED = "installed"
LOCAL = "local"


def origin_of(name: str, path: Sequence[str]) -> str:
    """Return `STANDARD`, `INSTALLED` or `LOCAL`; nothing is imported for it.

    A compiled module counts as installed wherever it lies: what it loads is its own.

    Args:
        name: A module; only its top-level package is looked for.
        path: Folders to look into, as in ``sys.path``.
    """
    from importlib.machinery import PathFinder

    top = name.partition(".")[0]
    if top in sys.builtin_module_names or top in getattr(sys, "stdlib_module_names", ()):
        return STANDARD
    try:
        spec = PathFinder.find_spec(top, list(path))
    except theirs(Exception):  # what lies on the path is not ours
        spec = None
    if spec is None:  # a finder of its own, as editable installs have, or nothing at all
        return INSTALLED
    file = spec.origin or next(iter(spec.submodule_search_locations or ()), "")
    if {"site-packages", "dist-packages"} & set(file.split(os.sep)):
        return INSTALLED
    if file.startswith(os.path.dirname(os.__file__) + os.sep):
        return STANDARD
    return LOCAL if file.endswith(".py") or os.path.isdir(file) else INSTALLED


def distributions_of(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return top-level package -> (distribution, version), for those that are installed."""
    wanted = {name.partition(".")[0] for name in names}
    found: dict[str, tuple[str, str]] = {}
    for dist in metadata_library().distributions():
        try:
            bounded(dist)
            tops = (dist.read_text("top_level.txt") or "").split()
            if not tops:
                tops = [path.parts[0].partition(".")[0] for path in dist.files or ()]
            for top in wanted.intersection(tops):
                found.setdefault(top, (dist.metadata["Name"], dist.version))
        except theirs(Exception):  # broken metadata: there is no version to tell
            pass
    return found
