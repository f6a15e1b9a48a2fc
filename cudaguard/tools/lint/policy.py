"""Import statements in an order that a rule forbids, judged from the text of a program."""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cudaguard.model import Rule
    from cudaguard.system.source import Import

CONTEXT = "context"  # a rule may need one; no import brings it


class Misplaced(NamedTuple):
    """Two statements in the wrong order.

    Args:
        rule: The rule that forbids it.
        first: The statement that must come first, and comes second.
        then: The statement that comes too early.
        needed: The module that the rule wants first.
        early: The module that is imported too early.
    """

    rule: Rule
    first: Import
    then: Import
    needed: str
    early: str


def misplaced(statements: Sequence[Import], rules: Iterable[Rule]) -> list[Misplaced]:
    """Return what stands in the wrong order, by the place of what comes too early."""
    found = [
        one
        for rule in rules
        for needed, early in _pairs(rule)
        for one in _of_pair(statements, rule, needed, early)
    ]
    return sorted(found, key=lambda one: (one.then.cell, one.then.line))


def _pairs(rule: Rule) -> Iterator[tuple[str, str]]:
    """Yield (first, then) for each order that a rule asks for."""
    needs = [name for name in rule.needs if name != CONTEXT]
    yield from zip(needs, needs[1:])
    for watched in rule.watch:
        yield from ((need, watched) for need in needs)


def _of_pair(
    statements: Sequence[Import], rule: Rule, needed: str, early: str
) -> Iterator[Misplaced]:
    bringing = [(place, one) for place, one in enumerate(statements) if _imports(one, needed)]
    reported: list[Import] = []
    for place, then in enumerate(statements):
        if not _imports(then, early) or any(not one.excludes(then) for one in reported):
            continue
        brought = [(at, one) for at, one in bringing if not one.excludes(then)]
        if brought and brought[0][0] > place:
            reported.append(then)
            yield Misplaced(rule, brought[0][1], then, needed, early)


def _imports(statement: Import, module: str) -> bool:
    """Return True if the statement imports that module, or one inside it."""
    inside = f"{module}."
    return any(
        name == module or name.startswith(inside) for name in (statement.module, statement.name)
    )
