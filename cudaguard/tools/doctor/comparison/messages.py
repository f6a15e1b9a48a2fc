"""A comparison in words."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

_MOST = 4  # names of reports in a line
_WIDTH = 10
ABSENT = "absent"
_PRONOUN = ("it", "them")


def as_text(found: Mapping[str, Any], *, verbose: bool = False) -> str:
    """Return a comparison for a terminal.

    Args:
        found: As `cudaguard.tools.doctor.comparison.groups.compare` returns it.
        verbose: With what seldom matters.
    """
    first, *others = found["groups"]
    lines = [_summary(found, first, others)]
    for group in others:
        count = len(group["differences"])
        told = f"{count} difference{'s' * (count != 1)}"
        lines += ["", f"{_names(first['reports'])} -> {_names(group['reports'])}: {told}"]
        lines += [f"  {_difference(one)}" for one in group["differences"]]
    folded = found["folded"]
    if folded and verbose:
        lines += ["", "differences that seldom matter:", *_spread(folded)]
    elif folded:
        told = "difference seldom matters" if len(folded) == 1 else "differences seldom matter"
        lines += ["", f"{len(folded)} more {told}: --verbose lists {_PRONOUN[len(folded) > 1]}"]
    return "\n".join(lines)


def _summary(found: Mapping[str, Any], first: Mapping[str, Any], others: Sequence[Any]) -> str:
    total, alike = len(found["reports"]), len(first["reports"])
    if not others:
        return f"{total} reports: alike in what matters"
    if total == 2:
        return "2 reports: they differ"
    if alike == 1:
        return f"{total} reports: no two are alike"
    return f"{total} reports: {alike} are alike, the others ({total - alike}) differ from them"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + more


def _difference(one: Mapping[str, str]) -> str:
    kind, name, there, here = (one[key] for key in ("kind", "name", "reference", "here"))
    title = f"{kind:<{_WIDTH}}"
    if kind == "finding":
        return f"{title}{'only there' if here else 'not there'}: {name}"
    if kind in ("package", "conda", "torch"):
        there, here = _telling(there, here)
    subject = f"{name}: " if name else ""
    return f"{title}{subject}{there or ABSENT} -> {here or ABSENT}"


def _telling(there: str, here: str) -> tuple[str, str]:
    """Return the versions alone where they differ, else all that is known of both."""
    versions = there.partition(", ")[0], here.partition(", ")[0]
    return versions if versions[0] != versions[1] else (there, here)


def _spread(folded: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for one in folded:
        yield f"  {one['kind']:<{_WIDTH}}{one['name']}"
        for part in one["values"]:
            yield f"  {'':<{_WIDTH}}  {_names(part['reports'])}: {part['value'] or ABSENT}"
