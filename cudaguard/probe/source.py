"""Import statements of a source file, read without running any of it."""

from __future__ import annotations

import ast

from cudaguard.model import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Import(Record):
    """One module that an import statement names.

    Args:
        name: The module, as in ``torch.nn``; for ``from torch import nn`` this is ``torch.nn``
            as well, which may be a module or not.
        module: The module that is surely imported: ``torch`` for ``from torch import nn``.
        line: First line of the statement, from 1.
        column: Its column, from 1.
        last_line: Last line of the statement.
        is_from: Is it ``from ... import ...``?
        cell: Number of the cell of a notebook, from 1; 0 in other files.
        branch: Pairs of (place, arm) of the branches it stands in.
    """

    __slots__ = ("branch", "cell", "column", "is_from", "last_line", "line", "module", "name")
    name: str
    module: str
    line: int
    column: int
    last_line: int
    is_from: bool
    cell: int
    branch: tuple[tuple[int, int], ...]

    def __init__(
        self,
        name: str,
        module: str,
        line: int,
        column: int,
        last_line: int,
        *,
        is_from: bool = False,
        cell: int = 0,
        branch: Iterable[tuple[int, int]] = (),
    ) -> None:
        self._fill(
            name=name,
            module=module,
            line=line,
            column=column,
            last_line=last_line,
            is_from=is_from,
            cell=cell,
            branch=tuple(branch),
        )

    def excludes(self, other: Import) -> bool:
        """Do the two stand in different arms of one ``if`` or ``try``, so that one runs at most?"""
        arms = dict(self.branch)
        return any(arms.get(place, arm) != arm for place, arm in other.branch)


def imports_in(tree: ast.Module) -> list[Import]:
    """Return what is imported when the module is, in the order of the text.

    Functions are left out (they run later or never), and so is what stands under ``if
    TYPE_CHECKING``.
    """
    return list(_in_block(tree.body, ()))


def imports_of_file(path: str) -> list[str]:
    """Return the modules that a script imports at its top level; none if it cannot be read."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read(), path)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return list(dict.fromkeys(found.module for found in imports_in(tree)))


def _in_block(body: list[ast.stmt], branch: tuple[tuple[int, int], ...]) -> Iterator[Import]:
    for statement in body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            yield from _named(statement, branch)
        elif isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        else:
            for arm, block in enumerate(_blocks(statement)):
                inner = (*branch, (id(statement), arm)) if _is_choice(statement) else branch
                yield from _in_block(block, inner)


def _named(
    statement: ast.Import | ast.ImportFrom, branch: tuple[tuple[int, int], ...]
) -> Iterator[Import]:
    place = (
        statement.lineno,
        statement.col_offset + 1,
        statement.end_lineno or statement.lineno,
    )
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            yield Import(alias.name, alias.name, *place, branch=branch)
    elif not statement.level and statement.module:
        for alias in statement.names:
            name = statement.module if alias.name == "*" else f"{statement.module}.{alias.name}"
            yield Import(name, statement.module, *place, is_from=True, branch=branch)


def _is_choice(statement: ast.stmt) -> bool:
    return isinstance(statement, (ast.If, ast.Try)) or type(statement).__name__ == "Match"


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of a statement; those of a choice are its arms."""
    if isinstance(statement, ast.If):
        for is_body, block in ((True, statement.body), (False, statement.orelse)):
            if _is_for_types(statement.test) is not is_body:
                yield block
            else:
                yield []
    elif isinstance(statement, ast.Try) or type(statement).__name__ == "TryStar":
        # `else` and `finally` run after the body, in one arm with it.
        whole: ast.Try = statement  # type: ignore[assignment]
        yield [*whole.body, *whole.orelse, *whole.finalbody]
        for handler in whole.handlers:
            yield handler.body
    else:
        for name in ("body", "orelse"):
            inner: object = getattr(statement, name, None)
            if isinstance(inner, list):
                yield inner
        for case in getattr(statement, "cases", ()):
            yield case.body


def _is_for_types(test: ast.expr) -> bool | None:
    """Return True for ``TYPE_CHECKING``, False for ``not TYPE_CHECKING``, else None."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _is_for_types(test.operand)
        return None if inner is None else not inner
    name = getattr(test, "id", getattr(test, "attr", ""))
    return True if name == "TYPE_CHECKING" else None
