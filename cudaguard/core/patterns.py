"""What the actions of a rule are about: tables of one verb each, mostly with a file pattern."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from cudaguard.core.rule import Rule

_SIGNS = "*?["
_LIKENESS = 0.7  # of 1: "demolish" is not meant to be a verb of ours
_LOOKS_LIKE = str.maketrans("OQIL", "0011")  # letters that are taken for digits


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


# --- What was probably meant by a word or an id that is not known ---------------------------------


def closest(word: object, names: Iterable[str]) -> str:
    """Return the name that is most like a word; empty if none is like it."""
    from difflib import get_close_matches

    if not isinstance(word, str):
        return ""
    return next(iter(get_close_matches(word, names, 1, _LIKENESS)), "")


def same_id(id: str, known: Iterable[str]) -> str:
    """Return a known id as it is spelled, given in upper or lower case; empty if there is none."""
    known = tuple(known)
    if id in known:
        return id
    return next((one for one in known if one.casefold() == id.casefold()), "")


def closest_id(id: str, known: Iterable[str]) -> str:
    """Return the known id that was probably meant, as in CG001 for ``cg0O1`` or ``CG1``."""
    known = tuple(known)
    spelled = {one.upper(): one for one in known}
    word = id.strip().upper()
    letters = word.rstrip("0123456789OQIL")
    number = word[len(letters) :].translate(_LOOKS_LIKE)
    padded = f"{letters.rstrip('-_ ')}{number.zfill(3)}" if number else ""
    if len(number) == 3 and word not in spelled:  # any other id is as near
        return spelled.get(padded, "")
    return spelled.get(padded) or spelled.get(closest(word, spelled), "")
