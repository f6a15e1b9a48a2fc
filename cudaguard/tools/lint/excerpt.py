"""Where a module is named in a source, and that place as text with a line of carets below it."""

from __future__ import annotations

from cudaguard.files.text import printable
from cudaguard.tools.layout import columns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    Statement = Any  # a `cudaguard.system.source.Import`
    Place = Mapping[str, int]  # cell, line, column, end_column

TAB = 4  # columns, as rustc and ruff show one
WIDEST = 160  # characters of a line that are shown
MARGIN = 40  # of them before what is marked, in a line that is cut
CUT = "..."


def place_of(statement: Statement, lines: Mapping[int, Sequence[str]]) -> Place:
    """Return where a statement names its module; columns count characters, from 1.

    Where the name is written in an odd way, as in ``import a . b``, the place is that of the
    statement.

    Args:
        statement: What was found.
        lines: Cell -> its lines.
    """
    text = [line.rstrip("\r\n") for line in lines[statement.cell]]
    first = text[statement.line - 1]
    # Python counts the bytes of UTF-8.
    begin = len(first.encode()[: statement.column - 1].decode(errors="replace"))
    name = statement.module if statement.is_from else statement.name
    for number in range(statement.line, statement.last_line + 1):
        found = _found(name, text[number - 1], begin if number == statement.line else 0)
        if found >= 0:
            return _place(statement.cell, number, found + 1, found + 1 + len(name))
    return _place(statement.cell, statement.line, begin + 1, max(len(first), begin + 1) + 1)


def _found(name: str, line: str, start: int) -> int:
    """Return where a dotted name is in a line, and is no part of a longer one; -1 if nowhere."""
    at = line.find(name, start)
    while at >= 0:
        around = f" {line} "[at], f"{line} "[at + len(name)]
        if not any(sign in "._" or sign.isalnum() for sign in around):
            return at
        at = line.find(name, at + 1)
    return -1


def _place(cell: int, line: int, column: int, end_column: int) -> Place:
    return {"cell": cell, "line": line, "column": column, "end_column": end_column}


def excerpt(
    marks: Sequence[tuple[Place, str, str]], lines: Sequence[str], widest: int = WIDEST
) -> list[str]:
    """Return lines of a source with their numbers, a line of marks below each.

    Args:
        marks: (place, sign to underline it with, what is said behind), in the order to show.
        lines: The lines of the file or cell.
        widest: Characters of a line that are shown.
    """
    width = max(len(str(place["line"])) for place, _, _ in marks)
    shown = []
    for place, sign, words in marks:
        text, before, marked = _cut(lines[place["line"] - 1].rstrip("\r\n"), place, widest)
        shown.append(f"{place['line']:>{width}} | {text}")
        shown.append(f"{'':{width}} | {' ' * before}{sign * marked} {words}".rstrip())
    return shown


def _cut(line: str, place: Place, widest: int) -> tuple[str, int, int]:
    """Return a line as it is shown, the columns before what is marked, and those of it."""
    begin, end = place["column"] - 1, place["end_column"] - 1
    skipped = max(0, begin - min(MARGIN, widest // 3)) if len(line) > widest else 0
    head = f"{CUT if skipped else ''}{_shown(line[skipped:begin])}"
    rest = line[end : skipped + widest]
    tail = CUT if end + len(rest) < len(line) else ""
    marked = _shown(line[begin:end])
    return f"{head}{marked}{_shown(rest)}{tail}", columns(head), max(1, columns(marked))


def _shown(text: str) -> str:
    return printable(text.replace("\t", " " * TAB))
