"""A comparison in words."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from cudaguard.tools.layout import Page

_MOST = 4  # names of reports in a line
_WIDTH = 10
ABSENT = "absent"
_PRONOUN = ("it", "them")


def write(found: Mapping[str, Any], page: Page) -> None:
    """Write a comparison.

    Args:
        found: As `cudaguard.tools.doctor.comparison.groups.compare` returns it.
        page: Where to; a verbose one gets what seldom matters too.
    """
    first, *others = found["groups"]
    page.add(_summary(found, first, others), style="yellow" if others else "green")
    for group in others:
        count = len(group["differences"])
        told = f"{count} difference{'s' * (count != 1)}"
        page.blank()
        page.add(f"{_names(first, page)} -> {_names(group, page)}: {told}")
        for one in group["differences"]:
            page.add(_difference(one), 2, lead=f"{one['kind']:<{_WIDTH}}", hanging=_WIDTH)
    folded = found["folded"]
    if not folded:
        return
    page.blank()
    if page.verbose:
        page.add("differences that seldom matter:")
        _spread(folded, page)
    else:
        told = "difference seldom matters" if len(folded) == 1 else "differences seldom matter"
        page.add(f"{len(folded)} more {told}: --verbose lists {_PRONOUN[len(folded) > 1]}")


def _summary(found: Mapping[str, Any], first: Mapping[str, Any], others: Sequence[Any]) -> str:
    total, alike = len(found["reports"]), len(first["reports"])
    if not others:
        return f"{total} reports: alike in what matters"
    if total == 2:
        return "2 reports: they differ"
    if alike == 1:
        return f"{total} reports: no two are alike"
    return f"{total} reports: {alike} are alike, the others ({total - alike}) differ from them"


def _names(group: Mapping[str, Any], page: Page) -> str:
    return page.listed(group["reports"], _MOST)


def _difference(one: Mapping[str, str]) -> str:
    kind, name, there, here = (one[key] for key in ("kind", "name", "reference", "here"))
    if kind == "finding":
        return f"{'only there' if here else 'not there'}: {name}"
    if kind in ("package", "conda", "torch"):
        there, here = _telling(there, here)
    subject = f"{name}: " if name else ""
    return f"{subject}{there or ABSENT} -> {here or ABSENT}"


def _telling(there: str, here: str) -> tuple[str, str]:
    """Return the versions alone where they differ, else all that is known of both."""
    versions = there.partition(", ")[0], here.partition(", ")[0]
    return versions if versions[0] != versions[1] else (there, here)


def _spread(folded: Sequence[Mapping[str, Any]], page: Page) -> None:
    for one in folded:
        page.add(one["name"], 2, lead=f"{one['kind']:<{_WIDTH}}", hanging=_WIDTH)
        for part in one["values"]:
            page.add(f"{_names(part, page)}: {part['value'] or ABSENT}", 4 + _WIDTH)
