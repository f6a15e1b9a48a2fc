"""Symbol scope: keep libraries that a rule names out of the global scope.

Prevention only: the mode of a load is changed before it happens, so nothing has to be put back.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudaguard.model import Rule


def rules_for_library(library: str, scoping: Iterable[tuple[str, Rule]]) -> tuple[Rule, ...]:
    """Return the rules whose pattern matches the library's file name, wherever it lies.

    Args:
        library: Path or soname as given to the loader.
        scoping: Pairs of (file name pattern, rule).
    """
    from fnmatch import fnmatchcase

    name = os.path.basename(library)
    return tuple(rule for pattern, rule in scoping if fnmatchcase(name, pattern))


def rules_for_module(module: str, scoping: Iterable[tuple[str, Rule]]) -> tuple[Rule, ...]:
    """Return the rules that watch the module or a package around it.

    Args:
        module: Name of the module that asks for the global scope.
        scoping: Pairs of (file name pattern, rule).
    """
    names = [module]
    while "." in names[-1]:
        names.append(names[-1].rpartition(".")[0])
    return tuple(rule for _, rule in scoping if not set(names).isdisjoint(rule.watch))


def fixed_part(pattern: str) -> str:
    """Return what every name that the pattern matches begins with."""
    for sign in "*?[":
        pattern = pattern.partition(sign)[0]
    return pattern
