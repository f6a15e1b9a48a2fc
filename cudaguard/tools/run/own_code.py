"""What a line of the user's own source calls, read without running any of it.

A name is followed to the import statement or the call from which its value comes, within the file.
What cannot be followed counts as unknown: conclusions are drawn only from what is certain.
"""

from __future__ import annotations

import ast
import os

from cudaguard.files import LARGEST, read_bytes
from cudaguard.system.source import parsed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_STANDARD = os.path.dirname(os.__file__) + os.sep
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
# Through these Python code runs native code of its own, or ends itself.
_DIRECT = frozenset(("ctypes", "faulthandler", "os", "signal"))
# These open a library, whose constructors may depend on what was opened before.
_LOADERS = frozenset(("CDLL", "PyDLL", "LoadLibrary", "WinDLL", "OleDLL", "dlopen"))
_LOCKS = frozenset(("queue", "threading"))
_UNKNOWN, _DEFINED = "", "def"


def is_own(file: str) -> bool:
    """Return True for a file of the user: neither Python's, nor a package's, nor ours."""
    if file.startswith(("<", _STANDARD, _PACKAGE)):
        return False
    return not any(part in file for part in _INSTALLED) and os.path.isfile(file)


def is_standard(file: str) -> bool:
    """Return True for a file of the standard library."""
    return file.startswith(_STANDARD) and not any(part in file for part in _INSTALLED)


class OwnSource:
    """One file of the user's; one that cannot be read has no lines.

    Args:
        file: Its path.
    """

    def __init__(self, file: str) -> None:
        try:
            text = read_bytes(file, LARGEST)
            self._tree = parsed(text, file)
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            text, self._tree = b"", ast.Module([], [])
        self._lines = text.decode("utf-8", "replace").splitlines()
        self._origins = self._bindings()

    def text(self, line: int) -> str:
        """Return a line without its indentation."""
        return self._lines[line - 1].strip() if 0 < line <= len(self._lines) else ""

    def calls_only_own(self, line: int) -> bool:
        """Return True if a line calls native code only through ctypes and functions of Python's.

        False if it opens a library, or calls anything of which that is not certain.
        """
        calls = [node for node in self._parts(line) if isinstance(node, ast.Call)]
        origins = [self._origin(call.func) for call in calls]
        if any(set(origin.split(".")) & _LOADERS for origin in origins):
            return False
        is_direct = [origin.partition(".")[0] in _DIRECT for origin in origins]
        return any(is_direct) and all(
            direct or self._is_python(call.func) for direct, call in zip(is_direct, calls)
        )

    def waits_for_lock(self, line: int) -> bool:
        """Return True if a line waits for a lock, a queue or a thread of the program's own."""
        parts = list(self._parts(line))
        asked = [node.context_expr for node in parts if isinstance(node, ast.withitem)]
        asked += [node.func for node in parts if isinstance(node, ast.Call)]
        return bool(asked) and all(
            self._origin(one).partition(".")[0] in _LOCKS for one in asked
        )  # fmt: skip

    def _parts(self, line: int) -> Iterator[ast.AST]:
        """Yield the parts of the innermost statement on a line, without those of its blocks."""
        on_line = [
            node
            for node in ast.walk(self._tree)
            if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)
        ]
        begin = max((node.lineno for node in on_line), default=0)
        for node in on_line:
            if node.lineno == begin:  # several, as in `with lock: work()`
                for child in ast.iter_child_nodes(node):
                    if not isinstance(child, (ast.stmt, ast.excepthandler)):
                        yield from ast.walk(child)

    def _is_python(self, function: ast.expr) -> bool:
        """Return True for a function of this file, whose frame would be seen, or a built-in one."""
        import builtins

        name = getattr(function, "id", "")
        origin = self._origins.get(name)
        return origin == _DEFINED or (origin is None and hasattr(builtins, name))

    def _origin(self, node: ast.expr) -> str:
        """Return where a value comes from, as in ``ctypes.CDLL.boom``; empty if unknown."""
        if isinstance(node, ast.Name):
            return self._origins.get(node.id, _UNKNOWN)
        if isinstance(node, ast.Attribute):
            attribute = self._origins.get(f".{node.attr}")
            if attribute is not None:
                return attribute
            owner = self._origin(node.value)
            return f"{owner}.{node.attr}" if owner else _UNKNOWN
        return self._origin(node.func) if isinstance(node, ast.Call) else _UNKNOWN

    def _bindings(self) -> dict[str, str]:
        """Return where each name (of an attribute with a dot in front) has its one value from."""
        found: dict[str, set[str]] = {}
        values: dict[int, ast.expr] = {}  # by the node that an assignment binds
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    values.update(_pairs(target, node.value))
            elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
                values[id(node.target)] = node.value
            for name, origin in _imported(node):
                found.setdefault(name, set()).add(origin)
        self._origins = {name: next(iter(one)) for name, one in found.items() if len(one) == 1}
        for node in ast.walk(self._tree):
            name = _bound(node)
            if not name:
                continue
            value = values.get(id(node))
            origin = self._origin(value) if isinstance(value, ast.Call) else _UNKNOWN
            if isinstance(node, ast.FunctionDef) and not node.decorator_list:
                origin = _DEFINED
            # The library is open once the call is over: what is called then are its functions.
            opened = set(origin.split(".")) & _LOADERS
            found.setdefault(name, set()).add("ctypes.opened" if opened else origin)
        return {name: _only(origins) for name, origins in found.items()}


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the names that an import statement binds, and what they name."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            top = alias.name.partition(".")[0]
            yield alias.asname or top, alias.name if alias.asname else top
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name, f"{'.' * node.level}{node.module}.{alias.name}"


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[int, ast.expr]]:
    """Yield the identities of the nodes that an assignment binds, and their values."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        if len(target.elts) == len(value.elts):
            yield from ((id(one), given) for one, given in zip(target.elts, value.elts))
    else:
        yield id(target), value


def _bound(node: ast.AST) -> str:
    """Return the name that a node binds, otherwise than an import does; empty if it binds none."""
    if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
        return node.id if isinstance(node, ast.Name) else f".{node.attr}"
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)):
        return node.name or ""
    return ""


def _only(origins: set[str]) -> str:
    return next(iter(origins)) if len(origins) == 1 else _UNKNOWN
