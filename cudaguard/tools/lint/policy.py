"""Import statements in an order that a rule forbids, judged from the text of a program."""

from __future__ import annotations

from cudaguard.model import Record, Rule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    # A statement is a `cudaguard.system.source.Import`, which nothing here may import.
    Statement = Any

CONTEXT = "context"  # a rule may need one; no import brings it


class Misplaced(Record):
    """Two statements in the wrong order.

    Args:
        rule: The rule that forbids it.
        first: The statement that must come first, and comes second.
        then: The statement that comes too early.
        needed: The module that the rule wants first.
        early: The module that is imported too early.
    """

    __slots__ = ("early", "first", "needed", "rule", "then")
    rule: Rule
    first: Statement
    then: Statement
    needed: str
    early: str

    def __init__(
        self, rule: Rule, first: Statement, then: Statement, needed: str, early: str
    ) -> None:
        self._fill(rule=rule, first=first, then=then, needed=needed, early=early)


def misplaced(statements: Sequence[Statement], rules: Iterable[Rule]) -> list[Misplaced]:
    """Return what stands in the wrong order, by the place of what comes too early."""
    found: list[Misplaced] = []
    for rule in rules:
        for needed, early in _pairs(rule):
            found += _of_pair(statements, rule, needed, early)
    return sorted(found, key=lambda one: (one.then.cell, one.then.line, one.then.column))


def _pairs(rule: Rule) -> Iterator[tuple[str, str]]:
    """Yield (first, then) for each order that a rule asks for."""
    needs = [name for name in rule.needs if name != CONTEXT]
    yield from zip(needs, needs[1:])
    for watched in rule.watch:
        yield from ((need, watched) for need in needs)


def _of_pair(
    statements: Sequence[Statement], rule: Rule, needed: str, early: str
) -> Iterator[Misplaced]:
    told: list[Statement] = []
    for place, then in enumerate(statements):
        if not imports(then, early) or any(not one.excludes(then) for one in told):
            continue
        is_there = any(
            imports(one, needed) and not one.excludes(then) for one in statements[: place + 1]
        )
        later = next(
            (
                one
                for one in statements[place + 1 :]
                if imports(one, needed) and not one.excludes(then)
            ),
            None,
        )
        if later is not None and not is_there:
            told.append(then)
            yield Misplaced(rule, later, then, needed, early)


def imports(statement: Statement, module: str) -> bool:
    """Return True if the statement imports that module, or one inside it."""
    inside = f"{module}."
    return any(
        name == module or name.startswith(inside) for name in (statement.module, statement.name)
    )


def is_kept_by_sorters(first: Statement, then: Statement, *, by_name: bool = False) -> bool:
    """Return True if isort and ruff leave these two in this order, within one section.

    Args:
        first: Stands first.
        then: Stands second.
        by_name: With ``force_sort_within_sections``.
    """
    if first.call or then.call:  # code, on either side of which they sort apart
        return True
    if not by_name and first.is_from is not then.is_from:
        return not first.is_from
    return bool(_key(first) < _key(then))


def _key(statement: Statement) -> tuple[str, str]:
    name = statement.module
    return name.lower(), name
