"""Imports of one source, in the order of execution, read without executing any of it.

`Code` yields an `Import` for each module that is imported, and an `Effect` for each statement that
does more than import, define or compute a value: what is imported behind it may depend on it.
"""

from __future__ import annotations

import ast
import operator
import re
import sys

from cudaguard.files import LARGEST, os, own_errors, read_bytes, words_in
from cudaguard.model import KW_ONLY, TYPE_CHECKING, NamedTuple, Record, lazy
from cudaguard.system import LOCAL, origin_of_file

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
    from types import CodeType
    from typing import Any, Union

    Branch = tuple[tuple[int, int], ...]
    # Returns what comes then: one of those below.
    Steps = Generator[Union["Import", "Effect"], None, int]

# What follows a block: what stands behind it, what its function was called from, or nothing.
_GOES_ON, _RETURNS, EXITS = range(3)
_FUNCTIONS, _LOOPS = (ast.FunctionDef, ast.AsyncFunctionDef), (ast.For, ast.AsyncFor, ast.While)
_ESCAPES = re.compile(r"\\N\{[^}\n]{0,99}\}|\\[^\n]")
# Functions that import the module which their first argument names.
_LOADERS = ("builtins.__import__", "importlib.import_module", "pytest.importorskip")
_RUNNERS = ("runpy.run_module", "runpy.run_path")
_EXITS = frozenset(("builtins.exit", "builtins.quit", "os._exit", "os.abort", "sys.exit"))
# Calls, and methods (``.name``), that change nothing that an import could depend on.
_PLAIN_CALLS = frozenset(words_in(os.path.dirname(__file__), "plain_calls.txt"))
_PLAIN = (
    ast.Constant, ast.Name, ast.Attribute, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.BinOp,
    ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Subscript, ast.Slice, ast.JoinedStr,
    ast.FormattedValue, ast.Starred, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
    ast.comprehension, ast.NamedExpr, ast.keyword, ast.expr_context, ast.operator, ast.unaryop,
    ast.boolop, ast.cmpop,
)  # fmt: skip
# What is known before a program runs.
_VERSION = (*sys.version_info,)
_KNOWN = {"sys.version_info": _VERSION, "sys.platform": sys.platform, "os.name": os.name}
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}  # fmt: skip


class Import(Record):
    """One module that an import statement names, or a call that imports it."""

    name: str  # ``torch.nn`` for ``from torch import nn`` as well, which may be a module or not
    module: str  # that is surely imported: ``torch`` for ``from torch import nn``
    line: int  # the first one of the statement, from 1
    last_line: int
    _: KW_ONLY
    file: str = ""  # that it stands in
    is_from: bool = False  # ``from ... import ...``
    branch: Branch = ()  # pairs of (place, arm) of the branches it stands in
    call: str = ""  # as in ``importlib.import_module('torch')``; empty for a statement
    is_likely: bool = False  # the program has another way: in a ``try``, a function or a call

    def excludes(self, other: Import) -> bool:
        """Return True if the two are in different arms of one ``if`` or ``try``."""
        arms = dict(self.branch)
        return any(arms.get(place, arm) != arm for place, arm in other.branch)

    def brings(self, module: str) -> bool:
        """Return True if that module is imported by it, or one inside it."""
        return any(f"{name}.".startswith(f"{module}.") for name in (self.module, self.name))


class Effect(NamedTuple):
    """A statement that what is imported behind it may depend on; or one that cannot be read."""

    file: str
    line: int


class Module(Record):
    """A module of the program's, or the top of an installed package."""

    name: str  # its ``__name__``
    package: str  # what its relative imports are relative to
    file: str  # its source; empty for a namespace package
    folders: tuple[str, ...] = ()  # where its sub-modules are; empty if it is no package
    source: str | bytes | None = None  # where it is in no file: a cell, ``python -c``, an archive

    @property
    def is_installed(self) -> bool:
        """True for a file of an installed package or of Python."""
        return origin_of_file(self.file) != LOCAL


def parsed(source: bytes | str, path: str = "<unknown>") -> ast.Module:
    """Return the tree of a source, in which no string has an escape any more.

    Python warns of an escape that it does not know. To keep that back would change the state of
    `warnings` for other threads too. Of what is no Python it raises SyntaxError, and others too:
    ValueError, RecursionError, MemoryError.
    """
    from importlib.util import decode_source

    try:
        text = decode_source(source) if isinstance(source, bytes) else source
    except LookupError as error:  # it names a codec that is none for texts
        raise SyntaxError(str(error)) from None
    return ast.parse(_ESCAPES.sub(_without_escape, text), path)


def _without_escape(escape: re.Match[str]) -> str:
    """Return as much text; a brace stays: in an f-string without escapes it has a meaning."""
    last = escape[0][-1]
    return "_" * (len(escape[0]) - 1) + (last if len(escape[0]) == 2 and last in "{}" else "_")


class Code:
    """Reads one source in the order in which it is executed.

    What stands under a condition on the version or the platform that is false here, or under
    ``TYPE_CHECKING``, is left out.
    """

    def __init__(self, tree: ast.Module, module: Module) -> None:
        self.module, self._tree = module, tree
        self.is_outdated = False  # is it another one that is running?
        self._functions: list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, Branch]] = []

    @lazy
    def names(self) -> dict[str, str]:
        """Name -> module or function that was imported under it; empty if it is something else."""
        return dict(_bound(self._tree.body))

    def steps(self) -> Steps:
        """Yield what importing the module does."""
        self._functions.clear()
        return (yield from self._block(self._tree.body, (), likely=False))

    def later(self) -> Iterator[Import | Effect]:
        """Yield what its functions do, whenever they are called; `steps` comes before."""
        place = id(self)
        while self._functions:
            function, branch = self._functions.pop(0)
            yield from self._block(function.body, (*branch, (place, id(function))), likely=True)

    def rest(self, code: CodeType | None, line: int, *, calls_own: bool) -> Steps:
        """Yield what is executed behind a line that is being executed.

        What runs is the module (None), a function or a class of it. Does it call code of the
        program's just now (`calls_own`), and not of a package?
        """
        scope = self._scope(code)
        self.is_outdated = scope is None or (code is not None and not _agrees(scope.body, code))
        if self.is_outdated:
            yield Effect(self.module.file, line)
            return _GOES_ON
        return (yield from self._rest(scope.body, line, calls_own=calls_own, likely=False))

    def _scope(self, code: CodeType | None) -> Any:
        if code is None or code.co_name == "<module>":
            return self._tree
        for node in ast.walk(self._tree):
            if isinstance(node, (*_FUNCTIONS, ast.ClassDef)) and node.name == code.co_name:
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                if code.co_firstlineno == first:
                    return node
        return None

    def _rest(self, block: list[ast.stmt], line: int, *, calls_own: bool, likely: bool) -> Steps:
        place = _standing_at(block, line)
        if place is None:  # in the head of a statement, as the condition of a loop
            yield Effect(self.module.file, line)
            return _GOES_ON
        now = block[place]
        ends = _GOES_ON
        is_tried = likely or self._has_other_way(now)
        inner = [part for part in blocks(now) if _standing_at(part, line) is not None]
        if isinstance(now, (ast.Import, ast.ImportFrom)):
            yield from self._imported(now, (), likely=likely)
        elif isinstance(now, (*_FUNCTIONS, ast.ClassDef)) or not inner:
            is_call = isinstance(getattr(now, "value", None), ast.Call)
            is_class = isinstance(now, ast.ClassDef) and not now.decorator_list
            if not (is_class or (calls_own and is_call and self._is_lone_call(now))):
                yield Effect(self.module.file, line)
            ends = _RETURNS if isinstance(now, ast.Return) else _GOES_ON
        else:
            part = inner[0]
            ends = yield from self._rest(part, line, calls_own=calls_own, likely=is_tried)
            if isinstance(now, ast.Try):
                if part is now.body:
                    ends = (yield from self._block(now.orelse, (), likely=is_tried)) or ends
                if part is not now.finalbody:
                    ends = (yield from self._block(now.finalbody, (), likely=likely)) or ends
            elif not isinstance(now, ast.If):  # a context ends, a loop goes round
                yield Effect(self.module.file, line)
                ends = _GOES_ON
        return ends or (yield from self._block(block[place + 1 :], (), likely=likely))

    def _is_lone_call(self, statement: ast.stmt) -> bool:
        """Return True if the call that is under way is the last that a statement does."""
        call: Any = getattr(statement, "value", None)
        parts = (*call.args, *call.keywords)
        kept = isinstance(statement, (ast.Expr, ast.Return)) or _binds_names_only(statement)
        return kept and all(map(self._is_plain, (call.func, *parts)))

    def _has_other_way(self, statement: ast.stmt) -> bool:
        """Return True if the program goes on where an import inside the statement fails."""
        if isinstance(statement, (ast.With, ast.AsyncWith)):
            made = (getattr(item.context_expr, "func", None) for item in statement.items)
            return any(self._full(call) == "contextlib.suppress" for call in filter(None, made))
        last = (handler.body[-1] for handler in getattr(statement, "handlers", ()))
        return not all(isinstance(one, ast.Raise) or self._is_exit(one) for one in last)

    def _is_exit(self, statement: ast.stmt) -> bool:
        """Return True for a call that ends the program, and nothing else."""
        call: Any = getattr(statement, "value", None)
        is_call = isinstance(statement, ast.Expr) and isinstance(call, ast.Call)
        return is_call and self._full(call.func) in _EXITS

    def _block(self, block: Iterable[ast.stmt], branch: Branch, *, likely: bool) -> Steps:
        for statement in block:
            ends = yield from self._statement(statement, branch, likely=likely)
            if ends:
                return ends
        return _GOES_ON

    def _statement(self, statement: ast.stmt, branch: Branch, *, likely: bool) -> Steps:
        effect = Effect(self.module.file, statement.lineno)
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            yield from self._imported(statement, branch, likely=likely)
        elif isinstance(statement, ast.If):
            return (yield from self._choice(statement, branch, likely=likely))
        elif isinstance(statement, ast.Try) or type(statement).__name__ == "TryStar":
            return (yield from self._try(statement, branch, likely=likely))
        elif isinstance(statement, _FUNCTIONS):
            yield from self._values(_defaults(statement), effect, branch)
            yield from self._decorated(statement, effect, branch)
            self._functions.append((statement, branch))
        elif isinstance(statement, ast.ClassDef):
            heads = (*statement.bases, *(keyword.value for keyword in statement.keywords))
            yield from self._values(heads, effect, branch)
            yield from self._decorated(statement, effect, branch)
            return (yield from self._block(statement.body, branch, likely=likely))
        elif isinstance(statement, (ast.With, ast.AsyncWith)):
            yield from self._values((item.context_expr for item in statement.items), effect, branch)
            tried = likely or self._has_other_way(statement)
            ends = yield from self._block(statement.body, branch, likely=tried)
            return _GOES_ON if tried else ends
        elif isinstance(statement, _LOOPS) or hasattr(statement, "cases"):
            names = ("iter", "test", "subject")
            yield from self._values((getattr(statement, n, None) for n in names), effect, branch)
            for arm, part in enumerate(blocks(statement)):
                where = (*branch, (id(statement), arm))
                if (yield from self._block(part, where, likely=likely)):
                    yield effect
        elif isinstance(statement, (ast.Return, ast.Raise, ast.Break, ast.Continue)):
            yield from self._values(ast.iter_child_nodes(statement), effect, branch)
            return EXITS if isinstance(statement, ast.Raise) else _RETURNS
        else:
            return (yield from self._simple(statement, effect, branch))
        return _GOES_ON

    def _simple(self, statement: ast.stmt, effect: Effect, branch: Branch) -> Steps:
        """Yield what a statement without a block does."""
        value: Any = getattr(statement, "value", None)
        if self._is_exit(statement):
            yield from self._values(value.args, effect, branch)
            return EXITS
        is_binding = isinstance(statement, ast.Expr) or _binds_names_only(statement)
        if is_binding and value is not None:
            yield from self._values((value,), effect, branch)
        elif not (is_binding or isinstance(statement, (ast.Pass, ast.Global, ast.Nonlocal))):
            yield from self._by_calls((statement,), branch)
            yield effect
        return _GOES_ON

    def _choice(self, statement: ast.If, branch: Branch, *, likely: bool) -> Steps:
        effect = Effect(self.module.file, statement.lineno)
        arms: list[list[ast.stmt]] = []
        rest: list[ast.stmt] = [statement]
        while len(rest) == 1 and isinstance(rest[0], ast.If):  # `elif` is an `if` in an `else`
            now = rest[0]
            truth, rest = self.truth(now.test), now.orelse
            if truth is None:
                yield from self._values((now.test,), effect, branch)
            if truth is not False:
                arms.append(now.body)
            if truth:
                break
        else:
            arms.append(rest)
        if len(arms) == 1:
            return (yield from self._block(arms[0], branch, likely=likely))
        ended = []
        for arm, block in enumerate(arms):
            where = (*branch, (id(statement), arm))
            ended.append((yield from self._block(block, where, likely=likely)))
        if any(ended) and not all(ended):
            yield effect  # the program may end there
        return max(ended) if all(ended) else _GOES_ON

    def _try(self, statement: Any, branch: Branch, *, likely: bool) -> Steps:
        tried = self._has_other_way(statement)
        inside = (*branch, (id(statement), 0)) if tried else branch
        body = (*statement.body, *statement.orelse)
        ends = yield from self._block(body, inside, likely=likely or tried)
        for arm, handler in enumerate(statement.handlers, 1):
            yield from self._block(handler.body, (*branch, (id(statement), arm)), likely=True)
        if ends and tried:
            yield Effect(self.module.file, statement.lineno)
        ended = yield from self._block(statement.finalbody, branch, likely=likely)
        return ended or (_GOES_ON if tried else ends)

    def _imported(
        self, statement: ast.Import | ast.ImportFrom, branch: Branch, *, likely: bool
    ) -> Iterator[Import]:
        place = (statement.lineno, statement.end_lineno or statement.lineno)
        more: Any = {"file": self.module.file, "branch": branch, "is_likely": likely}
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                yield Import(alias.name, alias.name, *place, **more)
            return
        module = absolute(statement.module or "", statement.level, self.module.package)
        for alias in statement.names if module else ():
            name = module if alias.name == "*" else f"{module}.{alias.name}"
            yield Import(name, module, *place, is_from=True, **more)

    def _decorated(
        self, statement: Any, effect: Effect, branch: Branch
    ) -> Iterator[Import | Effect]:
        yield from self._by_calls(statement.decorator_list, branch)
        for item in statement.decorator_list:
            function = item.func if isinstance(item, ast.Call) else item
            if self._full(function) not in _PLAIN_CALLS and getattr(item, "attr", "") != "setter":
                yield effect

    # --- values --------------------------------------------------------------------------------

    def _values(
        self, nodes: Iterable[ast.AST | None], effect: Effect, branch: Branch
    ) -> Iterator[Import | Effect]:
        """Yield what it does to compute some values."""
        given = [node for node in nodes if node and not isinstance(node, (ast.Constant, ast.Name))]
        if any(isinstance(part, ast.Call) for node in given for part in ast.walk(node)):
            yield from self._by_calls(given, branch)
        if not all(map(self._is_plain, given)):
            yield effect

    def _is_plain(self, top: ast.AST) -> bool:
        """Return True if a value is computed without doing anything else."""
        todo = [top]
        while todo:  # expressions may be nested deeper than functions
            node = todo.pop()
            if isinstance(node, ast.Lambda):
                todo += _defaults(node)
                continue
            if isinstance(node, ast.Call):
                full = self._full(node.func)
                method = f".{getattr(node.func, 'attr', '')}"
                if (full or method) not in _PLAIN_CALLS and full not in _LOADERS:
                    return False
            elif not isinstance(node, _PLAIN):
                return False
            todo += ast.iter_child_nodes(node)
        return True

    def _by_calls(self, nodes: Iterable[ast.AST], branch: Branch) -> Iterator[Import]:
        """Yield the imports that calls in some values make."""
        todo = [(node, branch) for node in nodes][::-1]
        while todo:
            node, where = todo.pop()
            if isinstance(node, ast.Lambda):
                todo += [(default, where) for default in _defaults(node)][::-1]
                continue
            if isinstance(node, ast.Call):
                full = self._full(node.func)
                module = _first_argument(node) if full in (*_LOADERS, *_RUNNERS) else ""
                if module and not module.startswith("."):
                    place = (node.lineno, node.end_lineno or node.lineno)
                    yield Import(
                        module, module, *place, file=self.module.file, branch=where,
                        call=ast.unparse(node), is_likely=True,
                    )  # fmt: skip
            if isinstance(node, ast.IfExp):
                arms = enumerate((node.orelse, node.body))
                todo += [(arm, (*where, (id(node), n))) for n, arm in arms]
                todo.append((node.test, where))
            else:
                todo += [(child, where) for child in ast.iter_child_nodes(node)][::-1]

    def _full(self, node: ast.AST) -> str:
        """Return the full name of a function, as in ``importlib.import_module``, if it is known."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        root = self.names.get(node.id, f"builtins.{node.id}")
        return ".".join([root, *reversed(parts)]) if root else ""

    def truth(self, test: ast.expr) -> bool | None:
        """Return what a condition on Python, the platform or the module is; None if unknown."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.truth(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.BoolOp):
            found = {self.truth(value) for value in test.values}
            decides = isinstance(test.op, ast.Or)
            if decides in found:
                return decides
            return not decides if found == {not decides} else None
        if getattr(test, "id", getattr(test, "attr", "")) == "TYPE_CHECKING":
            return False
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            left, right = self._value(test.left), self._value(test.comparators[0])
            if left is None or right is None:
                return None
            try:
                return bool(_COMPARED[type(test.ops[0])](left, right))
            except own_errors(KeyError, TypeError):  # `is`, or what cannot be compared
                return None
        value = self._value(test)
        return None if value is None else bool(value)

    def _value(self, node: ast.expr) -> Any:
        """Return a value that is known before the program runs, else None."""
        if isinstance(node, ast.Constant):
            return 0 if node.value is None else node.value
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            values = tuple(map(self._value, node.elts))
            return None if None in values else values
        if isinstance(node, ast.Name) and node.id == "__name__":
            return self.module.name
        if isinstance(node, ast.Subscript) and self._full(node.value) == "sys.version_info":
            part: Any = node.slice
            if isinstance(part, ast.Slice):
                ends: Any = [end and self._value(end) for end in (part.lower, part.upper)]
                return _VERSION[slice(*ends)]
            place = self._value(part)
            return _VERSION[place] if place in range(5) else None
        if isinstance(node, ast.Call):
            if self._full(node.func) == "sys.platform.startswith":
                return sys.platform.startswith(_first_argument(node) or "\0")
            return None
        return _KNOWN.get(self._full(node))


def _bound(block: Iterable[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Yield the names that a module binds, and what was imported under them."""
    todo = [(statement, False) for statement in block][::-1]
    while todo:
        statement, is_inside = todo.pop()
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                top = alias.name.partition(".")[0]
                yield alias.asname or top, alias.name if alias.asname else top
        elif isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                module = "" if statement.level else f"{statement.module}.{alias.name}"
                yield alias.asname or alias.name, module
        elif is_inside:  # what functions import is rarely another thing outside
            pass
        elif isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
            yield statement.name, ""
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from ((target.id, "") for target in targets if isinstance(target, ast.Name))
        is_inside = is_inside or isinstance(statement, (*_FUNCTIONS, ast.ClassDef))
        todo += [(child, is_inside) for part in blocks(statement) for child in part][::-1]


def blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    """Return the blocks of a statement."""
    found = [getattr(statement, name, None) for name in ("body", "orelse", "finalbody")]
    inner = (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ()))
    return [part for part in (*found, *(arm.body for arm in inner)) if isinstance(part, list)]


def _defaults(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.expr]:
    return [value for value in (*function.args.defaults, *function.args.kw_defaults) if value]


def _standing_at(block: list[ast.stmt], line: int) -> int | None:
    """Return which statement of a block a line is in."""
    for place, statement in enumerate(block):
        if statement.lineno <= line <= (statement.end_lineno or statement.lineno):
            return place
    return None


def _binds_names_only(statement: ast.stmt) -> bool:
    """Return True for a statement that gives names of its own module a value, or takes them."""
    if isinstance(statement, (ast.Assign, ast.Delete)):
        targets = statement.targets
    elif isinstance(statement, (ast.AnnAssign, ast.AugAssign)):
        targets = [statement.target]
    else:
        return False
    parts = (part for node in targets for part in ast.walk(node))
    return not any(isinstance(part, (ast.Attribute, ast.Subscript)) for part in parts)


def _agrees(block: list[ast.stmt], code: CodeType) -> bool:
    """Return True if a block is what was compiled, as far as its imports tell.

    The file may have been edited since.
    """
    lines = {line for *_, line in code.co_lines()} if sys.version_info >= (3, 10) else None
    todo = list(block)
    while todo:
        statement = todo.pop()
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            is_from = isinstance(statement, ast.ImportFrom)
            names = [statement.module or ""] if is_from else [a.name for a in statement.names]  # type: ignore[union-attr]
            if not {*names} <= {*code.co_names}:
                return False
            if lines is not None and statement.lineno not in lines:
                return False
        elif isinstance(statement, ast.If) and isinstance(statement.test, ast.Constant):
            todo += statement.body if statement.test.value else statement.orelse
        elif not isinstance(statement, (*_FUNCTIONS, ast.ClassDef, ast.While)):
            todo += [inner for part in blocks(statement) for inner in part]
    return True


def _first_argument(call: ast.Call) -> str:
    """Return the text that a call is given first, empty if it is none that can be read here."""
    given = [*call.args[:1], *(word.value for word in call.keywords if word.arg == "name")]
    value = getattr(given[0], "value", None) if given else None
    return value if isinstance(value, str) else ""


def absolute(module: str, level: int, package: str) -> str:
    """Return the full name of what ``from ..module import`` names; empty if there is none."""
    if not level:
        return module
    names = package.split(".") if package else []
    parents = names[: max(0, len(names) + 1 - level)]  # beyond the top there is nothing
    return ".".join([*parents, module] if module else parents) if parents else ""


# --- Files ----------------------------------------------------------------------------------------

_IGNORE, _ALL = "cudaguard: ignore", "*"


class Source(NamedTuple):
    """A file that was read."""

    code: Code | None = None  # None if it could not be read
    # Line -> ids that a comment on that line silences; ``*`` stands for all. Never changed.
    ignores: Mapping[int, frozenset[str]] = {}
    problem: str = ""  # why it could not be read

    def is_silenced(self, id: str, place: Import) -> bool:
        """Return True if a comment on a statement silences a rule."""
        lines = range(place.line, place.last_line + 1)
        return any(self.ignores.get(line, frozenset()) & {id, _ALL} for line in lines)


def read(path: str) -> Source:
    """Read a file; what cannot be read or parsed is told in the result."""
    if path.endswith(".ipynb"):
        return Source(problem="is a notebook; convert it: jupyter nbconvert --to script")
    try:
        data = read_bytes(path, LARGEST)
        return Source(Code(parsed(data, path), module_of_file(path)), dict(_ignores(data)))
    except OSError as error:
        return Source(problem=f"cannot be read: {error.strerror or error}")
    except SyntaxError as error:
        line = f"cannot parse line {error.lineno}: " if error.lineno else ""
        return Source(problem=f"{line}{error.msg}")
    except (ValueError, RecursionError, MemoryError) as error:
        return Source(problem=f"cannot be parsed: {type(error).__name__}: {error}")


def syntax_problem(path: str) -> str:
    """Return why a file cannot be read or parsed, empty if it can; no tree is made of it."""
    from symtable import symtable

    try:
        if path.endswith(".ipynb"):
            return read(path).problem
        symtable(read_bytes(path, LARGEST), path, "exec")  # type: ignore[arg-type]  # bytes are as good
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return read(path).problem
    return ""


def imports_of_file(path: str) -> list[Import]:
    """Return what a script imports at its top level, in the order of the text; none if unread."""
    code = read(path).code
    return [] if code is None else [step for step in code.steps() if isinstance(step, Import)]


def module_of_file(path: str) -> Module:
    """Return a file as the program that is run; in a package, as one of it."""
    parts: list[str] = []
    folder = os.path.dirname(os.path.abspath(path))
    while os.path.isfile(os.path.join(folder, "__init__.py")):
        folder, name = os.path.split(folder)
        parts.insert(0, name)
    return Module("__main__", ".".join(parts), path, (folder,))


def _ignores(data: bytes) -> Iterator[tuple[int, frozenset[str]]]:
    """Yield (line, ids) for the comments that silence something."""
    if _IGNORE.encode() not in data:
        return
    import io
    import tokenize

    for token in tokenize.tokenize(io.BytesIO(data).readline):
        if token.type == tokenize.COMMENT and _IGNORE in token.string:
            rest = token.string.partition(_IGNORE)[2].lstrip()
            ids = rest[1:].partition("]")[0] if rest.startswith("[") else _ALL
            named = frozenset(id.strip() for id in ids.split(",") if id.strip())
            yield token.start[0], named
