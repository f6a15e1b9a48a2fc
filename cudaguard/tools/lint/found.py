"""What `cudaguard lint` finds in one file, and what ``--fix`` makes of that file."""

from __future__ import annotations

import os
import sys

from cudaguard.model import Record
from cudaguard.system.origins import LOCAL, origin_of
from cudaguard.system.source_file import NOTEBOOK, decoded, source_of
from cudaguard.tools.lint import messages as say
from cudaguard.tools.lint.excerpt import WIDEST, excerpt, place_of
from cudaguard.tools.lint.fix import moved, obstacle
from cudaguard.tools.lint.policy import is_kept_by_sorters, misplaced

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from cudaguard.model import Rule
    from cudaguard.system.source_file import Source
    from cudaguard.tools.lint.policy import Misplaced


class Fixed(Record):
    """What ``--fix`` makes of a file.

    Args:
        before: The file as it was.
        after: The same, or with imports moved.
        count: How many findings are gone.
        problem: Why nothing was done, if that is to be told.
    """

    __slots__ = ("after", "before", "count", "problem")
    before: bytes
    after: bytes
    count: int
    problem: str

    def __init__(self, before: bytes, after: bytes, count: int = 0, problem: str = "") -> None:
        self._fill(before=before, after=after, count=count, problem=problem)


def findings(
    source: Source, rules: Sequence[Rule], command: str, widest: int = WIDEST
) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yield (finding as the JSON document has it, lines of the source to show with it).

    Args:
        source: The file.
        rules: Those to be kept.
        command: The one that fixes the file, if it can be fixed.
        widest: Characters of a line of the source that are shown.
    """
    for one in _found(source, rules):
        pinned, by_name = _sorting(source.path, one)
        places = place_of(one.then, source.lines), place_of(one.first, source.lines)
        told = say.finding(
            source.path, one, *places, is_pinned=pinned, by_name=by_name, command=command,
            reason=obstacle(source.lines[one.then.cell], one),
        )  # fmt: skip
        yield told, excerpt(say.marks(told), source.lines[one.then.cell], widest)


def _found(source: Source, rules: Sequence[Rule]) -> Iterator[Misplaced]:
    for one in misplaced(source.imports, rules):
        if not source.is_silenced(one.rule.id, one.then, one.first):
            yield one


def _sorting(path: str, one: Misplaced) -> tuple[bool, bool]:
    """Return whether a sorter would undo the right order, and whether sorting by name would not."""
    folders = [os.path.dirname(path) or ".", *sys.path]
    first, then = (origin_of(name, folders) == LOCAL for name in (one.needed, one.early))
    if first is not then:  # in sections of their own, the user's own modules last
        return first, False
    kept = is_kept_by_sorters(one.first, one.then)
    return not kept, not kept and is_kept_by_sorters(one.first, one.then, by_name=True)


def fixed(path: str, data: bytes, rules: Sequence[Rule]) -> Fixed:
    """Return what a file becomes when all that can be put in order is.

    Args:
        path: The file.
        data: What is in it.
        rules: Those to be kept.
    """
    source = source_of(path, data)
    if source.problem or path.endswith(NOTEBOOK):
        return Fixed(data, data)
    before = len(list(_found(source, rules)))
    if not before:
        return Fixed(data, data)
    lines, encoding = decoded(data)
    if "".join(lines).encode(encoding) != data:
        return Fixed(data, data, problem=say.ENCODING)
    now, orders = data, set()
    while True:
        found = list(_found(source, rules))
        one = next((one for one in found if not obstacle(lines, one)), None)
        if one is None:
            count = before - len(found)
            wrong = now != data and count <= 0
            return (
                Fixed(data, data, problem=say.CONTRADICTION) if wrong else Fixed(data, now, count)
            )
        orders.add(tuple(one.name for one in source.imports))
        try:
            lines = moved(lines, one)
        except ValueError as error:
            return Fixed(data, data, problem=str(error))
        now = "".join(lines).encode(encoding)
        source = source_of(path, now)
        if tuple(one.name for one in source.imports) in orders:
            return Fixed(data, data, problem=say.CONTRADICTION)
