"""Import order as a graph: who must come before whom, and what to do about contradictions."""

from __future__ import annotations

from cudaguard.model import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class Before(Record):
    """`first` must be imported before `then`, says `rule`.

    Args:
        rank: Decides between two rules that say the opposite of one pair; the greater wins.
    """

    first: str
    then: str
    rule: str
    rank: tuple[int, ...] = ()


def without_opposites(edges: Iterable[Before]) -> list[Before]:
    """Drop each edge whose opposite has a greater rank. Equal ranks both stay: a cycle."""
    strongest: dict[tuple[str, str], tuple[int, ...]] = {}
    edges = list(edges)
    for edge in edges:
        pair = edge.first, edge.then
        strongest[pair] = max(strongest.get(pair, edge.rank), edge.rank)
    return [
        edge
        for edge in edges
        if strongest.get((edge.then, edge.first), edge.rank) <= strongest[edge.first, edge.then]
    ]


def in_order(edges: Iterable[Before]) -> tuple[list[str], list[Before], list[str]]:
    """Return (modules in a safe order, edges honored by it, contradictions in words).

    The edges of a contradiction are not honored, none of them.
    """
    from graphlib import CycleError, TopologicalSorter

    edges = list(edges)
    problems: list[str] = []
    while True:
        graph: dict[str, list[str]] = {}
        for edge in edges:
            graph.setdefault(edge.then, []).append(edge.first)
        try:
            return list(TopologicalSorter(graph).static_order()), edges, problems
        except CycleError as error:
            cycle: list[str] = error.args[1][:-1]  # each one must precede the next
            # The same words wherever the cycle was entered, so that it is told only once.
            start = cycle.index(min(cycle))
            cycle = [*cycle[start:], *cycle[: start + 1]]
            words: list[str] = []
            involved: list[Before] = []
            for step in zip(cycle, cycle[1:]):
                here = [edge for edge in edges if (edge.first, edge.then) == step]
                involved += here
                rules = sorted({edge.rule for edge in here})
                words += [f"{rule} wants {step[0]} before {step[1]}" for rule in rules]
            problems.append("; ".join(words) + ": this cannot be done")
            edges = [edge for edge in edges if edge not in involved]
