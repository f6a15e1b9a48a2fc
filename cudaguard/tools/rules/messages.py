"""The wording of ``cudaguard rules test`` and ``cudaguard rules coverage``."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from cudaguard.tools.rules.coverage import Incident

VERDICTS = {
    "needed": "still needed, and it cures",
    "not-needed": "not needed with these releases: all is well without the guard",
    "not-cured": "NOT cured: it fails with the guard too",
    "not-run": "not known",
}


def text(document: Mapping[str, Any]) -> str:
    """Return the outcome for a terminal, its headline first.

    Args:
        document: As the schema ``rules.json`` has it, of the command ``rules test``.
    """
    lines = [f"{document['rule']}: {document['title']}"]
    if document["verdict"] == "not-run":
        lines.append(f"  not run: {document['reason']}")
        return "\n".join(lines)
    told = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    lines.append(f"  with: {told}; Python {document['python']}")
    for key, name in (("unguarded", "without the guard"), ("guarded", "with the guard")):
        half = document[key]
        word = "works" if half["works"] else f"fails, {half['ending']}"
        lines.append(f"  {name}: {word}")
        lines += [f"      {line}" for line in half["output"]]
    lines.append(f"  result: {VERDICTS[document['verdict']]}")
    return "\n".join(lines)


def coverage(found: Sequence[Incident], totals: Iterable[Mapping[str, Any]]) -> str:
    """Return the table of incidents and that of totals, for a terminal."""
    rows = [("id", "incident", "grade", "by")]
    rows += [(one.id, one.ref, one.grade, " ".join(one.by)) for one in found]
    sums = [("grade", "expected", "reached", "real", "native", "model", "no test")]
    sums += [
        (one["grade"], *(str(n) for n in (one["expected"], one["reached"], *one["proof"].values())))
        for one in totals
    ]
    lines = _columns(rows, str.ljust)
    lines += ["", f"{len(found)} public incidents; of those reached, what their tests run:"]
    return "\n".join([*lines, *_columns(sums, str.rjust)])


def _columns(rows: Sequence[Sequence[str]], align: Callable[[str, int], str]) -> list[str]:
    """Return the rows as lines; the first column is aligned to the left, the others by `align`."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(align(text, n) for text, n in zip(row[1:], widths[1:]))]
        ).rstrip()
        for row in rows
    ]
