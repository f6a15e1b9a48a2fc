"""Finds the installed package that a library belongs to."""

from __future__ import annotations

import sys

from cudaguard.files import os, ours
from cudaguard.system.modules import peek


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
