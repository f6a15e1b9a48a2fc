"""Move an import above another one, where nothing but imports stands between them.

Whole lines are moved, so what is written in and behind a statement stays with it, and so do the
comments right above it. Pure: lines in, lines out; what is not sure to be the same program is
left to its author.
"""

from __future__ import annotations

import ast
import re

from cudaguard.system.source import parsed
from cudaguard.tools.lint import messages as say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cudaguard.tools.lint.policy import Misplaced

_COMMENT = re.compile(r"[ \t]*#")
_BLANK = re.compile(r"\s*$")
# Comments on lines of their own that tell a tool how to treat what follows them.
_STEERS = re.compile(
    r"#\s*(?:(?:cudaguard|fmt|isort|mypy|noqa|pylint|pyright|region|endregion|ruff|type|yapf)\b|%%|<)",
    re.IGNORECASE,
)


def obstacle(lines: Sequence[str], one: Misplaced) -> str:
    """Return why two statements of a file cannot be put in order here, empty if they can.

    Args:
        lines: Of the file, with their ends; Python must be able to parse it.
        one: What is in the wrong order there.
    """
    if one.then.cell:
        return say.NOTEBOOK
    if one.first.call or one.then.call:
        return say.CALL
    if (one.first.line, one.first.column) == (one.then.line, one.then.column):
        return say.ONE_STATEMENT
    body = parsed("".join(lines)).body
    places = {(node.lineno, node.col_offset + 1): n for n, node in enumerate(body)}
    early = places.get((one.then.line, one.then.column))
    late = places.get((one.first.line, one.first.column))
    if early is None or late is None:
        return say.NESTED
    return next(_obstacles(lines, body[early : late + 1]), "")


def _obstacles(lines: Sequence[str], block: Sequence[ast.stmt]) -> Iterator[str]:
    for node in block:
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            yield say.not_an_import(node.lineno)
        elif isinstance(node, ast.ImportFrom) and node.module == "__future__":
            yield say.future(node.lineno)
        elif not _has_its_lines(lines, node):
            yield say.shared_line(node.lineno)
    moved, passed = block[-1], block[:-1]
    names = dict(_bound(moved))
    for node in passed:
        for name, meaning in _bound(node):
            if "*" in (name, *names):
                yield say.star(node.lineno if name == "*" else moved.lineno)
            elif names.get(name, meaning) != meaning:
                yield say.same_name(name, node.lineno, moved.lineno)
    if _is_split_above(lines, moved):
        yield say.PINNED
    for number in range(_first_line(lines, block[0]), moved.lineno - 1):
        comment = lines[number].strip()
        if comment != say.SPLIT and _STEERS.match(comment):
            yield say.steered(number + 1, comment)


def _has_its_lines(lines: Sequence[str], node: ast.stmt) -> bool:
    """Return True if no other statement has a part of the lines of this one."""
    end = (node.end_lineno or node.lineno) - 1
    rest = lines[end].encode()[node.end_col_offset or 0 :].decode(errors="replace")
    before = lines[node.lineno - 2] if node.lineno > 1 else ""
    goes_on = before.rstrip("\r\n").endswith("\\") and not _COMMENT.match(before)
    return not node.col_offset and not goes_on and bool(_BLANK.match(rest) or _COMMENT.match(rest))


def _bound(node: ast.stmt) -> Iterator[tuple[str, str]]:
    """Yield the names that an import statement binds, and what each will mean."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            top = alias.name.partition(".")[0]
            yield (alias.asname, alias.name) if alias.asname else (top, top)
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            source = f"{'.' * node.level}{node.module or ''}.{alias.name}"
            yield alias.asname or alias.name, source


def _first_line(lines: Sequence[str], node: ast.stmt) -> int:
    """Return the index of the first line of a statement and the comments right above it.

    Comments on top of a file are the file's, and what keeps sorters apart is nobody's.
    """
    number = node.lineno - 1
    while number and _COMMENT.match(lines[number - 1]) and lines[number - 1].strip() != say.SPLIT:
        number -= 1
    return number if number or node.lineno == 1 else node.lineno - 1


def moved(lines: Sequence[str], one: Misplaced) -> list[str]:
    """Return the lines with the second statement above the first, and a mark between them.

    The mark has sorters keep the order, whatever their settings.

    Args:
        lines: Of the file, with their ends.
        one: What is in the wrong order there, without an `obstacle`.
    """
    nodes = {node.lineno: node for node in parsed("".join(lines)).body}
    then, first = nodes[one.then.line], nodes[one.first.line]
    to = _first_line(lines, then)
    begin, end = _first_line(lines, first), first.end_lineno or first.lineno
    newline = _end_of(lines[then.lineno - 1]) or "\n"
    is_open = not _end_of(lines[-1])  # no new line at the end of the file
    whole = [*lines[:-1], lines[-1] + newline] if is_open else list(lines)
    split = [newline, say.SPLIT + newline]
    if _is_blank(whole, end) and begin > (then.end_lineno or then.lineno):
        # The paragraph that it was, with the blank lines above it.
        rest = [*_without_blank_end(whole[to:begin]), *whole[end:]]
    else:
        rest = [*whole[to:begin], *whole[end:]]
    changed = [*whole[:to], *whole[begin:end], *split, *rest]
    if is_open:
        changed[-1] = changed[-1].rstrip("\r\n")
    if not _is_same_program(lines, changed, (one.then.line, one.first.line)):
        raise ValueError(say.NOT_THE_SAME)
    return changed


def _is_split_above(lines: Sequence[str], node: ast.stmt) -> bool:
    """Return True if an `# isort: split` stands right above a statement and its comments."""
    for number in range(node.lineno - 2, -1, -1):
        if lines[number].strip() == say.SPLIT:
            return True
        if not (_COMMENT.match(lines[number]) or _is_blank(lines, number)):
            break
    return False


def _is_blank(lines: Sequence[str], place: int) -> bool:
    """Return True for a blank line, and behind the last."""
    return place >= len(lines) or bool(_BLANK.match(lines[place]))


def _without_blank_end(lines: list[str]) -> list[str]:
    while lines and _BLANK.match(lines[-1]):
        lines = lines[:-1]
    return lines


def _end_of(line: str) -> str:
    return line[len(line.rstrip("\r\n")) :]


def _is_same_program(before: Sequence[str], after: Sequence[str], places: tuple[int, int]) -> bool:
    """Return True if the statements are the same, but for the one that was moved."""
    old, new = (parsed("".join(lines)).body for lines in (before, after))
    lines = [node.lineno for node in old]
    to, begin = map(lines.index, places)
    old.insert(to, old.pop(begin))
    return list(map(ast.dump, old)) == list(map(ast.dump, new))
