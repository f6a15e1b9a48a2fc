"""What the actions of a rule are about: ``verb:argument``, mostly file name patterns."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudaguard.model import Rule

_SIGNS = "*?["


def arguments(rule: Rule, *verbs: str) -> tuple[str, ...]:
    """Return what the rule's actions with these verbs are about, in their order."""
    split = (action.partition(":") for action in rule.actions)
    return tuple(argument for verb, _, argument in split if verb in verbs)


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
