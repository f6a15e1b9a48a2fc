"""What `cudaguard lint` says."""

from __future__ import annotations

from cudaguard.core.verbs import verb_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

SPLIT = "# isort: split"


def finding(path: str, misplaced: Any, *, is_pinned: bool, by_name: bool) -> dict[str, Any]:
    """Return one finding as the JSON document has it.

    Args:
        path: The file.
        misplaced: A `cudaguard.tools.lint.policy.Misplaced`.
        is_pinned: True if a sorter of imports would undo the right order.
        by_name: True if it would not, sorting by name alone.
    """
    first, then, rule = misplaced.first, misplaced.then, misplaced.rule
    lines = [_statement(first), *([SPLIT] if is_pinned else []), _statement(then)]
    return {
        "path": path,
        "cell": then.cell,
        "line": then.line,
        "column": then.column,
        "rule": rule.id,
        "what": (
            f"{misplaced.early} is imported before {misplaced.needed}, which follows in "
            f"{_place(first, then)}"
        ),
        "why": rule.why,
        "write": lines,
        "sorters": _sorters(is_pinned=is_pinned, by_name=by_name),
        "links": list(rule.links),
    }


def _place(first: Any, then: Any) -> str:
    return f"line {first.line}" if first.cell == then.cell else f"cell {first.cell}"


def _statement(statement: Any) -> str:
    if statement.call:
        return str(statement.call)
    if not statement.is_from:
        return f"import {statement.name}"
    name = statement.name[len(statement.module) + 1 :] or "*"
    return f"from {statement.module} import {name}"


def _sorters(*, is_pinned: bool, by_name: bool) -> str:
    if not is_pinned:
        return "isort and ruff keep this order"
    other = ", or set force_sort_within_sections = true," if by_name else ""
    return (
        f"isort and ruff (I001) would undo this order: keep the line `{SPLIT}` between the two"
        f"{other} or put `# isort: skip` behind the first"
    )


def text(found: Mapping[str, Any]) -> str:
    """Return one finding for a reader; the first line is what editors can jump to."""
    cell = f"cell {found['cell']}:" if found["cell"] else ""
    place = f"{found['path']}:{cell}{found['line']}:{found['column']}"
    lines = [f"{place}: {found['rule']} {found['what']}", f"    why: {found['why']}"]
    lines += [f"    {'write:' if not n else '      '} {w}" for n, w in enumerate(found["write"])]
    lines.append(f"    {found['sorters']}")
    return "\n".join(lines)


def summary(found: Sequence[Mapping[str, Any]], files: int) -> str:
    """Return how much was found in how many files."""
    count = len(found)
    return f"{count} finding{'' if count == 1 else 's'} in {files} file{'' if files == 1 else 's'}"


def needs_no_order(path: str, line: int, module: str, rule: Any) -> str:
    """Return that a rule is about a module, and asks for no order in the source."""
    verbs = ", ".join(dict.fromkeys(map(verb_of, rule.actions)))
    does = f"the guard repairs it where it stands ({verbs})" if verbs else "it only warns"
    return f"{path}:{line}: {module}: {rule.id} needs no order here: {does}"


def unchecked(rule: Any) -> str:
    """Return that a rule was left out, as its conditions do not hold."""
    return f"{rule.id} is not checked: it is about other versions than those installed here"
