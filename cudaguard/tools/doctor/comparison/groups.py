"""Groups hosts that are alike in what matters; each group is compared to the largest."""

from __future__ import annotations

from cudaguard.tools.doctor.comparison.facts import KINDS, facts_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from cudaguard.tools.doctor.comparison.facts import Fact

    Values = Mapping[Fact, str]


def compare(reports: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> dict[str, Any]:
    """Return how reports differ, as plain data.

    Args:
        reports: As `cudaguard.tools.doctor.comparison.reading.read_report` returns them.
        labels: Their names.

    Returns:
        ``reports``; ``groups``, the largest first, to which the others are compared;
        ``folded``, what differs and seldom matters.
    """
    values = [facts_of(report) for report in reports]
    known = sorted({fact for one in values for fact in one}, key=_place)
    differing = [fact for fact in known if len({one.get(fact, "") for one in values}) > 1]
    alike: dict[tuple[str, ...], list[int]] = {}
    for number, one in enumerate(values):
        told = tuple(one.get(fact, "") for fact in differing if fact.matters)
        alike.setdefault(told, []).append(number)
    groups = sorted(alike.values(), key=len, reverse=True)  # of equal ones the first
    reference = values[groups[0][0]]
    return {
        "reports": list(labels),
        "groups": [
            {
                "reports": [labels[number] for number in group],
                "differences": _differences(differing, reference, values[group[0]]),
            }
            for group in groups
        ],
        "folded": [
            {"kind": fact.kind, "name": fact.name, "values": _spread(fact, values, labels)}
            for fact in differing
            if not fact.matters
        ],
    }


def _place(fact: Fact) -> tuple[int, str]:
    return KINDS.index(fact.kind), fact.name


def _differences(
    differing: Sequence[Fact], reference: Values, here: Values
) -> list[dict[str, str]]:
    return [
        {"kind": fact.kind, "name": fact.name, "reference": there, "here": own}
        for fact in differing
        if fact.matters
        for there, own in [(reference.get(fact, ""), here.get(fact, ""))]
        if there != own
    ]


def _spread(fact: Fact, values: Sequence[Values], labels: Sequence[str]) -> list[dict[str, Any]]:
    """Return which reports have which value, the most frequent one first."""
    found: dict[str, list[str]] = {}
    for one, label in zip(values, labels):
        found.setdefault(one.get(fact, ""), []).append(label)
    spread = sorted(found.items(), key=lambda item: len(item[1]), reverse=True)
    return [{"value": value, "reports": names} for value, names in spread]
