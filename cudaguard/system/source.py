"""Import statements of a source file, read without running any of it."""

from __future__ import annotations

import ast
import re

from cudaguard.files import LARGEST, read_bytes
from cudaguard.model import KW_ONLY, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_NOTHING = ast.Constant(None)
_ESCAPES = re.compile(r"\\N\{[^}\n]*\}|\\[^\n]")
# Functions that import the module which their first argument names, by their own module.
LOADERS = {
    "builtins": "__import__",
    "importlib": "import_module",
    "pytest": "importorskip",
}
# Parts of a statement that are run later, or apart from its head; also of ``lambda``.
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BODIES = ("body", "orelse", "finalbody", "handlers", "cases", "annotation", "returns")


class Import(Record):
    """One module that an import statement names, or a call that imports it.

    Args:
        name: The module, as in ``torch.nn``; for ``from torch import nn`` this is ``torch.nn``
            as well, which may be a module or not.
        module: The module that is surely imported: ``torch`` for ``from torch import nn``.
        line: First line of the statement, from 1.
        last_line: Last line of the statement.
        is_from: True for ``from ... import ...``.
        cell: Number of the cell of a notebook, from 1; 0 in other files.
        branch: Pairs of (place, arm) of the branches it stands in.
        call: The call, as in ``importlib.import_module('torch')``; empty for a statement.
    """

    name: str
    module: str
    line: int
    last_line: int
    _: KW_ONLY
    is_from: bool = False
    cell: int = 0
    branch: tuple[tuple[int, int], ...] = ()
    call: str = ""

    def excludes(self, other: Import) -> bool:
        """Return True if the two are in different arms of one ``if`` or ``try``."""
        arms = dict(self.branch)
        return any(arms.get(place, arm) != arm for place, arm in other.branch)


def imports_in(tree: ast.Module, loaders: Iterable[str] | None = None) -> list[Import]:
    """Return what is imported when the module is, in the order of the text.

    Functions are left out (they run later or never), and so is what stands under ``if
    TYPE_CHECKING`` or ``if False``.

    Args:
        tree: The module.
        loaders: Names of functions that import; None, those that the module itself tells.
    """
    known = frozenset(loaders_in(tree) if loaders is None else loaders)
    return list(_in_block(tree.body, (), known))


def imports_after(tree: ast.Module, line: int) -> list[tuple[str, int]]:
    """Return the modules that will be imported next by a module in the middle of an import.

    Args:
        tree: The module.
        line: The line of the import statement that is being executed.

    Returns:
        What that statement and those which follow it import, with their lines; behind the first
        statement that is no import, constant or definition comes an entry without a name.
        Nothing if the line is in a ``try`` or in a loop, or is no import.
    """
    block, place = tree.body, None
    while place is None:
        found = _standing_at(block, line)
        if found is None:
            return []
        statement = block[found]
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            place = found
        elif isinstance(statement, (*_FUNCTIONS, ast.With, ast.AsyncWith)):
            block = statement.body
        elif isinstance(statement, ast.If):
            in_body = _standing_at(statement.body, line) is not None
            block = statement.body if in_body else statement.orelse
        else:
            return []
    names: list[tuple[str, int]] = []
    for statement in block[place:]:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            names += [(one.module, one.line) for one in _named(statement, ())]
            if isinstance(statement, ast.ImportFrom) and statement.level:
                names.append(("", statement.lineno))  # of the program's own
        elif not _is_declaration(statement):
            names.append(("", statement.lineno))
    return names


def _is_declaration(statement: ast.stmt) -> bool:
    """Return True for a statement that does nothing beyond its own module."""
    if isinstance(statement, _FUNCTIONS):
        return not statement.decorator_list and not statement.args.defaults
    if isinstance(statement, ast.Assign) and not all(
        isinstance(target, ast.Name) for target in statement.targets
    ):
        return False  # os.environ["..."] = "1"
    is_plain = isinstance(statement, (ast.Assign, ast.Expr, ast.Pass))
    return is_plain and isinstance(getattr(statement, "value", _NOTHING), ast.Constant)


def _standing_at(block: list[ast.stmt], line: int) -> int | None:
    """Return which statement of a block a line is in."""
    for place, statement in enumerate(block):
        if statement.lineno <= line <= (statement.end_lineno or statement.lineno):
            return place
    return None


def loaders_in(tree: ast.Module) -> set[str]:
    """Return the names under which a module knows functions that import, as in ``il.reload``."""
    found = {LOADERS["builtins"]}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in LOADERS and not node.level:
            function = LOADERS[node.module]
            found |= {alias.asname or function for alias in node.names if alias.name == function}
        elif isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                if top in LOADERS and (top == alias.name or not alias.asname):
                    found.add(f"{alias.asname or top}.{LOADERS[top]}")
    return found


def imports_of_file(path: str) -> list[str]:
    """Return the modules that a script imports at its top level; none if it cannot be read."""
    try:
        found = imports_in(parsed(read_bytes(path, LARGEST), path))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return list(dict.fromkeys(one.module for one in found))


def parsed(source: bytes | str, path: str = "<unknown>") -> ast.Module:
    """Return the tree of a source, in which no string has an escape any more.

    Python warns of an escape that it does not know. To keep that back would change the state of
    `warnings` for other threads too.

    Raises:
        SyntaxError: It is no Python. (Others too: ValueError, RecursionError, MemoryError.)
    """
    from importlib.util import decode_source

    text = decode_source(source) if isinstance(source, bytes) else source
    return ast.parse(_ESCAPES.sub(lambda escape: "_" * len(escape[0]), text), path)


def _in_block(
    body: list[ast.stmt], branch: tuple[tuple[int, int], ...], loaders: frozenset[str]
) -> Iterator[Import]:
    for statement in body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            yield from _named(statement, branch)
            continue
        for name, part in ast.iter_fields(statement):
            if name not in _BODIES:
                yield from _by_calls(part, branch, loaders)
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for arm, block in enumerate(_blocks(statement)):
            inner = (*branch, (id(statement), arm)) if _is_choice(statement) else branch
            yield from _in_block(block, inner, loaders)


def _by_calls(
    part: object, branch: tuple[tuple[int, int], ...], loaders: frozenset[str]
) -> Iterator[Import]:
    """Yield the imports that calls in a part of a statement make, as it is run."""
    todo = [(part, branch)]
    while todo:  # expressions may be nested deeper than functions
        node, where = todo.pop()
        inside: list[tuple[object, tuple[tuple[int, int], ...]]] = []
        if isinstance(node, list):
            inside = [(item, where) for item in node]
        elif isinstance(node, ast.IfExp):
            arms = enumerate((node.body, node.orelse))
            inside = [(node.test, where), *((arm, (*where, (id(node), n))) for n, arm in arms)]
        elif isinstance(node, ast.AST):
            parts = (value for name, value in ast.iter_fields(node) if name not in _BODIES)
            inside = [(value, where) for value in parts if isinstance(value, (list, ast.AST))]
        todo += reversed(inside)
        if isinstance(node, ast.Call) and _dotted(node.func) in loaders:
            module = _first_argument(node)
            if module and not module.startswith("."):
                place = (node.lineno, node.end_lineno or node.lineno)
                yield Import(module, module, *place, branch=where, call=ast.unparse(node))


def _dotted(node: ast.expr) -> str:
    """Return a name such as ``importlib.import_module``, empty for all else."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else ""


def _first_argument(call: ast.Call) -> str:
    """Return the text that a call is given first, empty if it is none that can be read here."""
    given = [*call.args[:1], *(word.value for word in call.keywords if word.arg == "name")]
    value = getattr(given[0], "value", None) if given else None
    return value if isinstance(value, str) else ""


def _named(
    statement: ast.Import | ast.ImportFrom, branch: tuple[tuple[int, int], ...]
) -> Iterator[Import]:
    place = (statement.lineno, statement.end_lineno or statement.lineno)
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
            yield [] if _is_never(statement.test) is is_body else block
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


def _is_never(test: ast.expr) -> bool | None:
    """Return True for what is false when a program runs, False for what is true, else None."""
    if isinstance(test, ast.Constant):
        return not test.value
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _is_never(test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        found = {_is_never(value) for value in test.values}
        decides = isinstance(
            test.op, ast.And
        )  # one that is never true; for `or`, one that always is
        if decides in found:
            return decides
        return not decides if found == {not decides} else None
    name = getattr(test, "id", getattr(test, "attr", ""))
    return True if name == "TYPE_CHECKING" else None
