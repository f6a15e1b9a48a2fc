"""The facts that rules are conditioned on, looked up when a rule asks."""

from __future__ import annotations

import sys

from cudaguard.files import LARGEST, os, ours, read_bytes, theirs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.metadata import Distribution
    from typing import Any


_METADATA = ("info", ".egg")  # ends of what metadata are called, as in foo-1.0.dist-info


class Facts:
    """This process, as far as rules may depend on it. Versions are remembered per object."""

    def __init__(self) -> None:
        self._versions: dict[str, str | None] = {}

    @property
    def python(self) -> str:
        """Version of the interpreter, as in ``3.11.7``."""
        return ".".join(map(str, sys.version_info[:3]))

    @property
    def platform(self) -> str:
        """``sys.platform``."""
        return sys.platform

    @property
    def machine(self) -> str:
        """Hardware name, as in ``x86_64``."""
        return os.uname().machine if hasattr(os, "uname") else ""

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment as Python sees it now."""
        return os.environ

    def version(self, dist: str) -> str | None:
        """Return the version of an installed distribution, None if it is not installed."""
        if dist not in self._versions:
            self._versions[dist] = _installed_version(dist)
        return self._versions[dist]


def _installed_version(dist: str) -> str | None:
    if not _may_be_installed(dist):
        return None
    return next(filter(None, (_of(name, "version") for name in _spellings(dist))), None)


def _may_be_installed(dist: str) -> bool:
    """Return False if no folder of sys.path has metadata of that name.

    Most rules are about packages that are not there. To learn that from ``importlib.metadata``
    costs a program that does not use it the import of ``email``, ``random`` and others.
    """
    own = sys.modules["_frozen_importlib_external"].PathFinder
    if any(one is not own and hasattr(one, "find_distributions") for one in sys.meta_path):
        return True
    wanted = _folded(dist)
    for entry in sys.path:
        if type(entry) is not str or entry.lower().endswith(".egg"):
            return True
        try:
            names = os.listdir(entry or ".")
        except ours(FileNotFoundError):
            continue
        except ours(OSError):  # a zip file, or one that may be looked into but not listed
            return True
        for name in names:
            if name[-4:].lower() in _METADATA and _folded(name).startswith(wanted):
                return True
    return False


def _folded(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")


def requires_of(dist: str) -> tuple[str, ...]:
    """Return what an installed distribution requires, in its words; nothing if that is unknown."""
    return tuple(next(filter(None, (_of(name, "requires") for name in _spellings(dist))), ()))


def _of(name: str, what: str) -> Any:
    # Not importlib_metadata: importing it puts a finder on sys.meta_path, and takes the standard
    # library's ability to find distributions away for good.
    from importlib import metadata

    try:
        return getattr(distribution(metadata, name), what)
    # Not installed, or broken metadata: a folder without a file in it, no version, not UTF-8.
    # Releases of Python raise different things, and a rule must be certain to act.
    except theirs(Exception):
        return None


def distribution(library: Any, name: str) -> Distribution:
    """Return an installed distribution, as `bounded` does.

    ``distribution`` of Python 3.15 and importlib_metadata reads the metadata to choose one.

    Args:
        library: ``importlib.metadata``, or what it is made from.
        name: The distribution's name.

    Raises:
        PackageNotFoundError: It is not installed.
    """
    for one in library.Distribution.discover(name=name):
        return bounded(one)
    raise library.PackageNotFoundError(name)


def bounded(dist: Distribution) -> Distribution:
    """Return a distribution that reads its metadata within bounds, if they are files.

    What should be metadata may be a pipe that nobody feeds, or a link to ``/dev/zero``.
    """
    folder: Any = getattr(dist, "_path", None)

    def read_text(filename: str) -> str | None:
        try:
            return read_bytes(folder.joinpath(filename), LARGEST).decode()
        except ours(FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError):
            return None  # as the method that this replaces

    if isinstance(folder, os.PathLike):  # one in a zip file is none
        vars(dist)["read_text"] = read_text  # all of its properties call it
    return dist


def _spellings(dist: str) -> tuple[str, ...]:
    if sys.version_info >= (3, 10) or not dist:
        return (dist,) if dist else ()
    # Python 3.9 takes hyphens for underscores, and no more.
    words = dist.replace("-", ".").replace("_", ".").split(".")
    return tuple(dict.fromkeys((dist, "_".join(words), ".".join(words))))


def built_for() -> int:
    """Return the CUDA version that the installed torch is built for, 12040 for 12.4; 0 if unknown.

    torch is not imported for it: wheels from PyTorch's own index say it in their version
    (``2.5.1+cu124``), those from PyPI by the runtime that they require.
    """
    torch = _installed_version("torch")
    if torch is None:
        return 0
    local = torch.partition("+cu")[2]
    if local.isdecimal() and len(local) >= 3:
        return int(local[:-1]) * 1000 + int(local[-1]) * 10
    if "+" in torch:  # a build for the CPU, or for something else
        return 0
    for dist in ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime-cu11"):
        parts = (_installed_version(dist) or "").split(".")
        if len(parts) > 1 and parts[0].isdecimal() and parts[1].isdecimal():
            return int(parts[0]) * 1000 + int(parts[1]) * 10
    return 0
