"""Symbol scope: keep libraries that a rule names out of the global scope.

Prevention only: the mode of a load is changed before it happens, so nothing has to be put back.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudaguard.model import Rule


def scoping_rules(library: str, scoping: Iterable[tuple[str, Rule]]) -> tuple[Rule, ...]:
    """Return the rules whose pattern matches the library's file name, wherever it lies.

    Args:
        library: Path or soname as given to the loader.
        scoping: Pairs of (file name pattern, rule).
    """
    from fnmatch import fnmatchcase

    name = os.path.basename(library)
    return tuple(rule for pattern, rule in scoping if fnmatchcase(name, pattern))
