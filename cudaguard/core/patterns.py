"""What the actions of a rule are about: tables of one verb each, mostly with a file pattern."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from cudaguard.model import Rule

_SIGNS = "*?["


def actions_of(rule: Rule, *verbs: str) -> tuple[Mapping[str, Any], ...]:
    """Return the rule's actions with these verbs, in their order."""
    return tuple(action for action in rule.actions if not action.keys().isdisjoint(verbs))


def values_of(rule: Rule, *verbs: str) -> tuple[str, ...]:
    """Return the values of these verbs in the rule's actions, in their order."""
    return tuple(action[verb] for action in rule.actions for verb in verbs if verb in action)


def texts_of(value: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the texts of a parameter that takes one or several."""
    return (value,) if isinstance(value, str) else value


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Return True if a file name matches one of the patterns."""
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
