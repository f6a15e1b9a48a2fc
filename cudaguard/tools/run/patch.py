"""The suggested change of a program as a unified diff. Pure: text in, text out."""

from __future__ import annotations

import ast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection


def with_guard(source: str, name: str, call: str) -> str:
    """Return the diff that puts the guard up first.

    Args:
        source: The program.
        name: Its file, for the heading.
        call: As in ``cudaguard.install()``.

    Returns:
        "" if it is no Python, or installs a guard already.
    """
    tree = _parsed(source)
    if tree is None or _installs(tree):
        return ""
    line = _first_line(tree)
    lines = source.splitlines()
    return _diff(lines, [*lines[:line], "import cudaguard", call, *lines[line:]], name)


def moved_first(source: str, name: str, line: int, before: Collection[str]) -> str:
    """Return the diff that moves one import above those of some packages.

    Args:
        source: The program.
        name: Its file, for the heading.
        line: Number of the line with the import; it must stand alone there.
        before: Top-level packages.

    Returns:
        "" if there is no such import, or nothing to move it above.
    """
    tree = _parsed(source)
    if tree is None:
        return ""
    lines = source.splitlines()
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    moved = [node for node in imports if node.lineno == line == node.end_lineno]
    if len(moved) != 1 or ";" in lines[line - 1]:
        return ""
    others = set(before) - _packages(moved[0])
    targets = [n.lineno for n in imports if n.lineno < line and _packages(n) & others]
    if not targets:
        return ""
    first, text = targets[0] - 1, lines[line - 1]
    rest = [*lines[first : line - 1], *lines[line:]]
    return _diff(lines, [*lines[:first], text, *rest], name)


def imports_up_to(source: str, line: int) -> tuple[str, ...]:
    """Return the top-level packages that a program imports, in order, up to a line."""
    tree = _parsed(source)
    found: dict[str, None] = {}
    for node in [] if tree is None else tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)) and node.lineno <= line:
            found.update(dict.fromkeys(sorted(_packages(node))))
    return tuple(found)


def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _packages(node: ast.Import | ast.ImportFrom) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    return set() if node.level else {(node.module or "").partition(".")[0]}


def _installs(tree: ast.Module) -> bool:
    return any(
        isinstance(node, (ast.Import, ast.ImportFrom)) and "cudaguard" in _packages(node)
        for node in ast.walk(tree)
    )


def _first_line(tree: ast.Module) -> int:
    """Return how many lines come before the first statement that may come second."""
    line = 0
    for number, node in enumerate(tree.body):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_docstring = text and not number and isinstance(node.value.value, str)  # type: ignore[attr-defined]  # of a Constant
        is_future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if not (is_docstring or is_future):
            # Behind the comments on top of the file: the first two lines may tell its coding.
            decorators = getattr(node, "decorator_list", ())
            return line or min(item.lineno for item in (node, *decorators)) - 1
        line = node.end_lineno or node.lineno
    return line


def _diff(before: list[str], after: list[str], name: str) -> str:
    from difflib import unified_diff

    return "\n".join(unified_diff(before, after, name, name, n=1, lineterm=""))
