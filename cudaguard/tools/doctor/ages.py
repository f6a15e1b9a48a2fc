"""Finds the rules that have aged."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cudaguard.model import Rule

MONTHS = 12  # after which a rule is to be looked at again
_DAY = re.compile(r"(\d{4})-(\d\d)-(\d\d)\b")


def seen_on(rule: Rule) -> str:
    """Return the day when the fault of a rule was last reproduced, empty if it was not."""
    match = _DAY.match(rule.verified or "")
    return match[0] if match else ""


def is_long_ago(day: str, today: str, months: int = MONTHS) -> bool:
    """Return True if more months are between two days, as in ``2026-11-20``."""
    (year, month, date), (y, m, d) = (map(int, one.split("-")) for one in (day, today))
    return (y - year) * 12 + m - month - (d < date) >= months


def aged(rules: Iterable[Rule], today: str) -> list[tuple[Rule, str]]:
    """Return the rules that were last seen to be needed long ago, with the day."""
    days = ((rule, seen_on(rule)) for rule in rules)
    return [(rule, day) for rule, day in days if day and is_long_ago(day, today)]


def mended_by(rule: Rule, version_of: Callable[[str], str | None]) -> str:
    """Return what is installed and has the fault no longer, as in ``cupy 13.2.0``; else empty.

    Args:
        rule: Its `fixed_in` is a distribution and a version, or a version of what `dist` names.
        version_of: Returns the version of what is installed.
    """
    from cudaguard.system.versions import in_range, required_name

    name, _, version = (rule.fixed_in or "").rpartition(" ")
    if not name and rule.dist:
        name = required_name(rule.dist[0])
    if not name or not _is_version(version):
        return ""
    there = version_of(name)
    return f"{name} {there}" if there and in_range(there, f">={version}") else ""


def _is_version(text: str) -> bool:
    return re.fullmatch(r"\d+(\.\w+)*", text) is not None
