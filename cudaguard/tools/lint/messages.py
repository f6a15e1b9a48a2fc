"""What `cudaguard lint` says."""

from __future__ import annotations

from cudaguard.core.verbs import verb_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from cudaguard.tools.layout import Page

SPLIT = "# isort: split"
INDENT = 4  # columns before the parts of a finding


# Why --fix leaves something to its author; each follows "--fix leaves this to you:".
NOTEBOOK = "it does not rewrite notebooks"
CALL = "one of the two is a call, not an import statement"
ONE_STATEMENT = "one statement imports both; write two"
NESTED = "one of the two is inside a block, as of `if`, `try` or `with`"
PINNED = f"`{SPLIT}` between them pins the order as it is"
CONTRADICTION = "the rules contradict each other, so nothing in this file was fixed"
NOT_THE_SAME = "moving the import would change more than its place"
READ_ONLY = "the file is read-only"
LINKED = "the file has other hard links, which would keep the old text"
CHANGED = "the file was changed in the meantime"
ENCODING = "its encoding does not give the same bytes back"


def not_an_import(line: int) -> str:
    """Return that something else is done in between."""
    return f"line {line} is not an import, and may need the order as it is"


def future(line: int) -> str:
    """Return that a statement for the compiler is concerned."""
    return f"line {line} imports from __future__, which stays first"


def shared_line(line: int) -> str:
    """Return that a statement has no lines of its own."""
    return f"line {line} holds more than one statement"


def star(line: int) -> str:
    """Return that nobody can say what a statement binds."""
    return f"line {line} imports *, which may bind the same names"


def same_name(name: str, line: int, other: int) -> str:
    """Return that the order decides what a name means."""
    return f"lines {line} and {other} both bind the name {name}"


def steered(line: int, comment: str) -> str:
    """Return that a comment tells a tool about the lines that follow it."""
    return f"the comment in line {line} is about the lines below it: {comment}"


def finding(
    path: str, misplaced: Any, place: Mapping[str, int], needed: Mapping[str, int], *,
    is_pinned: bool, by_name: bool, reason: str, command: str,
) -> dict[str, Any]:  # fmt: skip
    """Return one finding as the JSON document has it.

    Args:
        path: The file.
        misplaced: A `cudaguard.tools.lint.policy.Misplaced`.
        place: Where it names the module that comes too early.
        needed: Where it names the module that must come first.
        is_pinned: True if a sorter of imports would undo the right order.
        by_name: True if it would not, sorting by name alone.
        reason: Why ``--fix`` leaves it, empty if it does not.
        command: The one that fixes it.
    """
    first, then, rule = misplaced.first, misplaced.then, misplaced.rule
    return {
        "path": path,
        **place,
        "rule": rule.id,
        "what": (
            f"{misplaced.early} is imported before {misplaced.needed}, which follows in "
            f"{_place(first, then)}"
        ),
        "why": rule.why,
        "needed": {"module": misplaced.needed, **needed},
        "write": [_statement(first), SPLIT, _statement(then)],
        "sorters": _sorters(is_pinned=is_pinned, by_name=by_name),
        "fixable": not reason,
        "reason": reason,
        "command": "" if reason else command,
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
        return f"isort and ruff keep this order; with `{SPLIT}` between the two, by any settings"
    other = ", or set force_sort_within_sections = true," if by_name else ""
    return (
        f"isort and ruff (I001) would undo this order: keep the line `{SPLIT}` between the two"
        f"{other} or put `# isort: skip` behind the first"
    )


def headline(found: Mapping[str, Any]) -> str:
    """Return the line that says what is wrong and where; editors can jump to it."""
    cell = f"cell {found['cell']}:" if found["cell"] else ""
    place = f"{found['path']}:{cell}{found['line']}:{found['column']}"
    return f"{place}: {found['rule']} {found['what']}"


def marks(found: Mapping[str, Any]) -> list[tuple[Any, str, str]]:
    """Return what `cudaguard.tools.lint.excerpt.excerpt` shows of a finding."""
    needed = found["needed"]
    shown = [(found, "^", "")]
    if needed["cell"] == found["cell"]:
        shown.append((needed, "-", "must come first"))
    return shown


def write(found: Mapping[str, Any], excerpt: Sequence[str], page: Page) -> None:
    """Write one finding for a reader.

    Args:
        found: As `finding` returns it.
        excerpt: The lines of the source that are shown.
        page: Where to.
    """
    page.add(headline(found), style="bold")
    for line in excerpt:
        page.block(line, INDENT)
    page.labeled("why", found["why"], INDENT)
    for number, line in enumerate(found["write"]):
        page.add("", INDENT, lead="       " if number else "write: ", whole=line)
    page.add(found["sorters"], INDENT)
    if found["fixable"]:
        page.labeled("run", found["command"], INDENT)
    else:
        page.add(left(found["reason"]), INDENT)


def left(reason: str) -> str:
    """Return that something was not fixed, and why."""
    return f"--fix leaves this to you: {reason}"


def fixed(count: int, files: int, *, is_done: bool) -> str:
    """Return how much was fixed, or would be, in how many files."""
    return f"{'fixed' if is_done else 'would fix'} {_counted(count, files)}"


def summary(found: Sequence[Mapping[str, Any]], files: int) -> str:
    """Return how much was found in how many files."""
    return _counted(len(found), files)


def _counted(count: int, files: int) -> str:
    return f"{count} finding{'s' * (count != 1)} in {files} file{'s' * (files != 1)}"


def needs_no_order(path: str, line: int, module: str, rule: Any) -> str:
    """Return that a rule is about a module, and asks for no order in the source."""
    verbs = ", ".join(dict.fromkeys(map(verb_of, rule.actions)))
    does = f"the guard repairs it where it stands ({verbs})" if verbs else "it only warns"
    return f"{path}:{line}: {module}: {rule.id} needs no order here: {does}"


def unchecked(rule: Any) -> str:
    """Return that a rule was left out, as its conditions do not hold."""
    return f"{rule.id} is not checked: it is about other versions than those installed here"
