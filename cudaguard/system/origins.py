"""Where an import name would come from: Python itself, an installed package, the user's files."""

from __future__ import annotations

import os
import sys

from cudaguard.files import theirs
from cudaguard.system.distributions import metadata_library
from cudaguard.system.facts import bounded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
