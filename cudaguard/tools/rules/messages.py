"""The wording of ``cudaguard rules test`` and ``cudaguard rules coverage``."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from cudaguard.tools.layout import Page
    from cudaguard.tools.rules.coverage import Incident

_INDENT = 2
VERDICTS = {
    "needed": "still needed, and it cures",
    "not-needed": "not needed with these releases: all is well without the guard",
    "not-cured": "NOT cured: it fails with the guard too",
    "not-run": "not known",
}


def write(document: Mapping[str, Any], page: Page) -> None:
    """Write the outcome, its headline first.

    Args:
        document: As the schema ``rules.json`` has it, of the command ``rules test``.
        page: Where to.
    """
    page.add(f"{document['rule']}: {document['title']}", style="bold")
    if document["verdict"] == "not-run":
        page.labeled("not run", document["reason"], _INDENT)
        return
    told = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    page.labeled("with", f"{told}; Python {document['python']}", _INDENT)
    for key, name in (("unguarded", "without the guard"), ("guarded", "with the guard")):
        half = document[key]
        page.labeled(name, "works" if half["works"] else f"fails, {half['ending']}", _INDENT)
        for line in half["output"]:
            page.block(line, 3 * _INDENT)
    page.labeled("result", VERDICTS[document["verdict"]], _INDENT)


def write_coverage(
    found: Sequence[Incident], totals: Iterable[Mapping[str, Any]], page: Page
) -> None:
    """Write the table of incidents and that of totals."""
    rows = [("id", "incident", "grade", "")]
    rows += [(one.id, one.ref, one.grade, "") for one in found]
    for lead, by in zip(_columns(rows, str.ljust), ("by", *(" ".join(one.by) for one in found))):
        page.add(by, lead=lead, hanging=len(lead))
    sums = [("grade", "expected", "reached", "real", "native", "model", "no test")]
    sums += [
        (one["grade"], *(str(n) for n in (one["expected"], one["reached"], *one["proof"].values())))
        for one in totals
    ]
    page.blank()
    page.add(f"{len(found)} public incidents; of those reached, what their tests run:")
    for line in _columns(sums, str.rjust):
        page.block(line)


def _columns(rows: Sequence[Sequence[str]], align: Callable[[str, int], str]) -> list[str]:
    """Return the rows as lines; the first column is aligned to the left, the others by `align`."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(align(text, n) for text, n in zip(row[1:], widths[1:]))]
        )
        for row in rows
    ]
