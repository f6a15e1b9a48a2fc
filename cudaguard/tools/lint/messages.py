"""What `cudaguard lint` says."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cudaguard.system.source import Import
    from cudaguard.tools.layout import Page
    from cudaguard.tools.lint.policy import Misplaced

SPLIT = "# isort: split"  # what has isort and ruff sort what stands above and below it apart
_INDENT = 4  # columns before the parts of a finding


def finding(path: str, misplaced: Misplaced) -> dict[str, Any]:
    """Return one finding as the JSON document has it."""
    rule, first, then = misplaced.rule, misplaced.first, misplaced.then
    place = f"line {first.line}" if first.cell == then.cell else f"cell {first.cell}"
    return {
        "path": path,
        "cell": then.cell,
        "line": then.line,
        "rule": rule.id,
        "what": f"{misplaced.early} is imported before {misplaced.needed}, which follows in "
        f"{place}",
        "why": rule.why,
        "needed": {"module": misplaced.needed, "cell": first.cell, "line": first.line},
        "write": [_statement(first), SPLIT, _statement(then)],
        "links": list(rule.links),
    }


def _statement(statement: Import) -> str:
    if statement.call:
        return statement.call
    if not statement.is_from:
        return f"import {statement.name}"
    name = statement.name[len(statement.module) + 1 :] or "*"
    return f"from {statement.module} import {name}"


def write(found: Mapping[str, Any], page: Page) -> None:
    """Write one finding for a reader.

    Args:
        found: As `finding` returns it.
        page: Where to.
    """
    cell = f"cell {found['cell']}:" if found["cell"] else ""
    place = f"{found['path']}:{cell}{found['line']}"
    page.add(f"{place}: {found['rule']} {found['what']}", style="bold")
    page.labeled("why", found["why"], _INDENT)
    for number, line in enumerate(found["write"]):
        page.add("", _INDENT, lead="       " if number else "write: ", whole=line)


def summary(found: int, files: int) -> str:
    """Return how much was found in how many files."""
    return f"{found} finding{'s' * (found != 1)} in {files} file{'s' * (files != 1)}"
