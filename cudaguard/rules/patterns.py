"""File name patterns, as rules name libraries by them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_SIGNS = "*?["


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Does a file name match one of the patterns?"""
    for pattern in patterns:
        # The fixed part first: nearly no library has it, and a pattern is costly to compile.
        if name.startswith(fixed_part(pattern)):
            from fnmatch import fnmatchcase

            if fnmatchcase(name, pattern):
                return True
    return False


def fixed_part(pattern: str) -> str:
    """Return what every name that the pattern matches begins with."""
    for sign in _SIGNS:
        pattern = pattern.partition(sign)[0]
    return pattern
