"""What the arguments of ``check-extension`` stand for: files, and another torch."""

from __future__ import annotations

import os
import sys

from cudaguard.tools.check_extension import messages
from cudaguard.tools.common import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def files_of(what: str) -> list[tuple[str, bool]]:
    """Return the files that an argument stands for, and True for one that is named itself.

    A path wins over a name.

    Raises:
        UsageError: It stands for nothing.
    """
    if os.path.isdir(what):
        found = sorted(_below(what))
    elif os.path.exists(what):
        return [(what, True)]
    else:
        found = _of_distribution(what)
    return [(path, False) for path in found]


def torch_at(path: str) -> str:
    """Return the folder of the torch that a path leads to.

    Raises:
        UsageError: There is none, more than one, or not for this Python.
    """
    found = list(dict.fromkeys(_torch_folders(os.path.abspath(path))))
    if len(found) > 1:
        raise UsageError(messages.several_torches(path, found))
    if not found:
        raise UsageError(messages.no_torch(path))
    _refuse_other_python(found[0])
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


def _of_distribution(name: str) -> list[str]:
    from cudaguard.system.distributions import metadata_library
    from cudaguard.system.facts import distribution

    try:
        listed = list(distribution(metadata_library(), name).files or ())
    except Exception as error:  # not installed, or broken metadata
        raise UsageError(f"{name}: {messages.EXPECTED}") from error
    files = (os.path.normpath(str(path.locate())) for path in listed)
    return sorted(file for file in files if _is_candidate(file))


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
    return all(os.path.exists(os.path.join(folder, name)) for name in ("version.py", "lib"))


def _refuse_other_python(torch: str) -> None:
    from cudaguard.system.extensions.causes import built_for_python

    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    built = {built_for_python(name) for name in os.listdir(torch) if name.endswith(".so")} - {""}
    if built and own not in built:
        version = min(built)
        raise UsageError(messages.torch_of_another_python(torch, version, own))
