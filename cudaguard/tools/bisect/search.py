"""Finds imports whose order makes a program fail: searches that ask, and run nothing.

The answer to one trial of one order is `GOOD`, `BAD` (the failure that is looked for) or `UNSURE`
(another failure). Sets are made small by delta debugging: Zeller and Hildebrandt, "Simplifying and
Isolating Failure-Inducing Input", IEEE TSE 28 (2002).
"""

from __future__ import annotations

from cudaguard.model import TYPE_CHECKING, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Names = tuple[str, ...]
    Trial = Callable[[Names], str]

GOOD = "good"
BAD = "bad"
UNSURE = "unsure"
MOST_PERMUTED = 4  # imports; beyond that only the likely orders are tried


class Answer(Record):
    """Result of a search."""

    failing: Names  # the smallest order found that fails
    working: Names = ()  # an order of the same imports, or with what they need; if one was found
    first: Names = ()  # the imports that must come first for it to work
    then: Names = ()  # those that they must precede; empty if that is the program itself


def ddmin(items: Sequence[str], holds: Callable[[Names], bool]) -> Names:
    """Return a part of `items`, in their order, that holds and no item of which can be left out.

    That all of them hold says the caller: `holds` is asked of parts that are neither empty nor all.
    """
    left = tuple(items)
    parts = 2
    while len(left) > 1:
        ends = [len(left) * number // parts for number in range(parts + 1)]
        chunks = [left[start:end] for start, end in zip(ends, ends[1:])]
        smaller = next((chunk for chunk in chunks if holds(chunk)), None)
        if smaller is not None:
            left, parts = smaller, 2
            continue
        without = (
            tuple(item for other in chunks if other is not chunk for item in other)
            for chunk in chunks
        )
        # With two parts each is the other's complement, which has just been asked.
        rest = next((some for some in without if parts > 2 and holds(some)), None)
        if rest is not None:
            left, parts = rest, max(parts - 1, 2)
        elif parts >= len(left):
            break
        else:
            parts = min(parts * 2, len(left))
    return left


def shortest_prefix(names: Names, trial: Trial) -> int:
    """Return the length of the shortest beginning that fails, given that the whole does.

    Beginnings fail from some length on: what has crashed does so whatever was to come.
    """
    works, fails = 0, len(names)
    while fails - works > 1:
        middle = (works + fails) // 2
        if trial(names[:middle]) == BAD:
            fails = middle
        else:
            works = middle
    return fails


def among(names: Names, trial: Trial, length: int = 0) -> Answer:
    """Search where a trial imports the names it is given, and nothing else.

    `length` is how many imports of `names` it takes to fail, if that is known.
    """
    length = length or shortest_prefix(names, trial)
    culprit = names[length - 1]
    if trial((culprit,)) == BAD:  # what must precede it?
        others = tuple(name for name in names if name != culprit)
        needs = _fewest(others, lambda some: trial((*some, culprit)) == GOOD)
        return Answer((culprit,), *(((*needs, culprit), needs, (culprit,)) if needs else ()))
    guilty = ddmin(names[: length - 1], lambda part: trial((*part, culprit)) == BAD)
    failing = (*guilty, culprit)
    for order in _other_orders(failing):
        if trial(order) == GOOD:
            if order[0] == culprit:
                return Answer(failing, order, (culprit,), guilty)
            # What has come before the culprit's last companion must do so in future.
            place = order.index(failing[-1]) if order[-1] != failing[-1] else len(order) - 1
            return Answer(failing, order, order[:place], order[place:])
    return Answer(failing)


def _fewest(names: Names, works: Callable[[Names], bool]) -> Names:
    """Return as few names as work, of all or of a single one; empty if neither works."""
    tried = (names, *((name,) for name in names))  # one of them may be in the way
    return ddmin(next((some for some in tried if works(some)), ()), works)


def _other_orders(failing: Names) -> list[Names]:
    """Return other orders of the same imports, the likely ones first."""
    from itertools import permutations

    likely = [(failing[-1], *failing[:-1]), failing[::-1]]
    every = permutations(failing) if len(failing) <= MOST_PERMUTED else ()
    return [order for order in dict.fromkeys((*likely, *every)) if order != failing]


def in_front(names: Names, trial: Trial) -> Answer | None:
    """Search where a trial puts some of its imports in front of a program; None: nothing helps."""
    cure = _fewest(names[::-1], lambda some: trial(some) == GOOD)
    if not cure:
        return None
    last = max(names.index(name) for name in cure)
    before = tuple(name for name in names[:last] if name not in cure)
    if not before or trial((*before, *cure)) != BAD:
        # It is what the program does between its imports: all that is certain is that this helps.
        rest = tuple(name for name in names if name not in cure)
        if not rest:  # in an order of their own; a single one has none to precede
            return Answer(names, cure, cure[:-1] or cure, cure[-1:] if cure[1:] else ())
        return Answer(names, (*cure, *rest), cure, rest[:1])
    guilty = ddmin(before, lambda part: trial((*part, *cure)) == BAD)
    return Answer((*guilty, *cure), (*cure, *guilty), cure, guilty)
