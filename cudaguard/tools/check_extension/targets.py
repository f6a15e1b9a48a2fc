"""What the arguments of ``check-extension`` stand for: files, and another torch."""

from __future__ import annotations

import os
import sys
import sysconfig
from contextlib import closing
from typing import NamedTuple

from cudaguard.tools.check_extension import messages
from cudaguard.tools.check_extension.wheels import (
    WheelError,
    is_wheel,
    link_neighbors,
    misfit,
    unpack,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack
    from typing import Any

    from cudaguard.elf.extension_check import ExtensionCheck


class WrongUsageError(Exception):
    """Raised for an argument that stands for nothing; the text says why."""


class File(NamedTuple):
    """One that is to be judged.

    Args:
        path: The file.
        is_named: True if it was named itself.
        known: The judgement, where there is one already: of a wheel that does not fit.
    """

    path: str
    is_named: bool = False
    known: ExtensionCheck | None = None


class Targets:
    """Finds the files, and unpacks wheels.

    Args:
        stack: Closes what is unpacked.

    Attributes:
        shown: Folder of what is unpacked -> the wheel that it comes from.
    """

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.shown: dict[str, str] = {}
        self._sites = [sysconfig.get_path(name) for name in ("platlib", "purelib")]

    def of(self, what: str) -> list[File]:
        """Return the files that an argument stands for; a path wins over a name.

        Raises:
            WrongUsageError: It stands for nothing, or is a wheel that is not unpacked.
            OSError: A wheel cannot be read or unpacked.
        """
        if os.path.isdir(what):
            return [File(path) for path in sorted(_below(what))]
        if os.path.exists(what):
            return self._of_wheel(what) if is_wheel(what) else [File(what, is_named=True)]
        found = _of_distribution(what)
        if found is None:
            raise WrongUsageError(f"{what}: {messages.EXPECTED}")
        return [File(path) for path in found]

    def _of_wheel(self, path: str) -> list[File]:
        wrong = misfit(path)
        if wrong is not None:
            return [File(path, is_named=True, known=wrong)]
        root, files = self._unpacked(path)
        link_neighbors(root, dict.fromkeys(self._sites), _installed_files(path))
        return [File(file) for file in files if _is_candidate(file)]

    def _unpacked(self, path: str) -> tuple[str, tuple[str, ...]]:
        import tempfile

        from cudaguard.tools.scratch import Scratch

        parent = os.path.realpath(tempfile.gettempdir())
        scratch = self._stack.enter_context(closing(Scratch("wheel", parent)))
        root = os.path.join(scratch.folder, "unpacked")
        os.mkdir(root)
        try:
            unpacked = unpack(path, root)
        except WheelError as error:
            raise WrongUsageError(f"{path}: {error}") from error
        self.shown[root] = path
        return unpacked.root, unpacked.files

    def torch(self, path: str) -> str:
        """Return the folder of the torch that is meant, which from now on is a neighbor of wheels.

        Raises:
            WrongUsageError: There is none, or not for this Python.
            OSError: A wheel cannot be read or unpacked.
        """
        if os.path.isfile(path) and is_wheel(path):
            wrong = misfit(path)
            if wrong is not None:
                raise WrongUsageError(f"--torch: {wrong.message}")
            path = self._unpacked(path)[0]
            link_neighbors(path, dict.fromkeys(self._sites), ["torch"])
        found = list(dict.fromkeys(_torch_folders(os.path.abspath(path))))
        if len(found) > 1:
            raise WrongUsageError(messages.several_torches(path, found))
        if not found:
            raise WrongUsageError(messages.no_torch(path))
        _refuse_other_python(found[0])
        self._sites.insert(0, os.path.dirname(found[0]))
        return found[0]


def _below(folder: str) -> Iterator[str]:
    for root, folders, names in os.walk(folder):
        # What wheels bundle is loaded by way of what needs it, and may well fail alone.
        folders[:] = [name for name in folders if not name.endswith(".libs")]
        yield from (os.path.join(root, name) for name in names if _is_candidate(name))


def _is_candidate(path: str) -> bool:
    from cudaguard.features.extensions.checks import is_extension, is_library

    if os.path.dirname(path).endswith(".libs"):
        return False
    return is_extension(path) or is_library(path)


def _of_distribution(name: str) -> list[str] | None:
    paths = _paths(name)
    if paths is None:
        return None
    found = (os.path.normpath(str(path.locate())) for path in paths)
    return sorted(file for file in found if _is_candidate(file))


def _installed_files(wheel: str) -> list[str]:
    """Return what is installed of the distribution of a wheel, relative to site-packages."""
    name = os.path.basename(wheel).partition("-")[0]
    return [os.path.normpath(str(path)) for path in _paths(name) or ()]


def _paths(name: str) -> list[Any] | None:
    """Return what a distribution lists as its files, None if it is not installed."""
    from cudaguard.system.distributions import metadata_library
    from cudaguard.system.facts import distribution

    try:
        return list(distribution(metadata_library(), name).files or ())
    except Exception:  # not installed, or broken metadata
        return None


def _torch_folders(path: str) -> Iterator[str]:
    """Yield the folders of torch that a path may mean; nothing is run to know."""
    from glob import escape, glob

    if os.path.isfile(path):  # an interpreter: no link is followed, it leads out of environments
        path = os.path.dirname(os.path.dirname(path))
    if _is_torch(path):
        yield path
        return
    places = ("", "lib*/python*/site-packages", "lib/python*/dist-packages")
    for place in places:
        for site in sorted(glob(os.path.join(escape(path), place))):
            folder = os.path.join(os.path.realpath(site), "torch")  # lib64 is a link to lib
            if _is_torch(folder):
                yield folder


def _is_torch(folder: str) -> bool:
    # An unpacked wheel may lack all but these.
    return all(os.path.exists(os.path.join(folder, name)) for name in ("version.py", "lib"))


def _refuse_other_python(torch: str) -> None:
    from cudaguard.system.extensions.causes import built_for_python

    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    built = {built_for_python(name) for name in os.listdir(torch) if name.endswith(".so")} - {""}
    if built and own not in built:
        version = min(built)
        raise WrongUsageError(messages.torch_of_another_python(torch, version, own))
