"""Which import orders are tried."""

from __future__ import annotations

from itertools import permutations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ALL = 3  # modules of which all orders are tried; of more, each ordered pair
MOST = 8  # modules: 56 pairs


def alone(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Return each module by itself."""
    return [(name,) for name in dict.fromkeys(names)]


def together(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the orders of modules that work by themselves: pairs first, they tell most."""
    names = list(dict.fromkeys(names))
    pairs: list[tuple[str, ...]] = list(permutations(names, 2))
    return [*pairs, *permutations(names)] if len(names) == ALL else pairs


def unexplained(
    failed: Iterable[tuple[str, ...]],
) -> list[tuple[str, ...]]:
    """Return the orders that fail and do not contain, in its order, a shorter one that does."""
    found: list[tuple[str, ...]] = []
    for order in sorted(failed, key=len):
        if not any(_is_within(other, order) for other in found):
            found.append(order)
    return found


def _is_within(part: tuple[str, ...], whole: tuple[str, ...]) -> bool:
    rest = iter(whole)
    return all(name in rest for name in part)
