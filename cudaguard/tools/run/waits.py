"""Which threads of a process wait for each other, as far as stacks and sources prove it.

A thread at ``with NAME:`` waits for that lock if another one, or itself, is in such a block. NAME
is a lock if the file binds it once, and uses it in ``with`` alone.
"""

from __future__ import annotations

import ast
import os
import re
from collections import Counter
from functools import cache

from cudaguard.files import read_bytes
from cudaguard.tools.run.record import Thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cudaguard.tools.run.record import FaultDump

_LARGEST = 1 << 20  # bytes of a source
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_LOCK = re.compile(r"(?:threading\.)?(R?)Lock\(\)")
_IMPORT = re.compile(r"import ([\w.]+)(?: as \w+)?|from (\w[\w.]*) import .*")
_JOIN = re.compile(r"[\w.]+\.join\(\)")
_IMPORTLIB, _THREADING = "<frozen importlib", f"{os.sep}threading.py"


def waits_of(dump: FaultDump, shown: Callable[[str], str]) -> tuple[list[str], list[str]]:
    """Return who waits for whom, in words; and the names of those that wait for each other.

    `shown` makes words of ``file:line``.
    """
    threads = [Thread(dump.thread, dump.name, dump.frames), *dump.others]
    names = [one.name or f"a thread in {''.join(f[2] for f in _own(one)[-1:])}" for one in threads]
    holders: dict[tuple[str, str], set[int]] = {}
    for number, thread in enumerate(threads):
        for file, line, function in thread.frames:
            for lock in _source(file).at(line, function)[1]:
                holders.setdefault((file, lock), set()).add(number)
    found: dict[int, int] = {}
    words = []
    for number, thread in enumerate(threads):
        others = {*range(len(threads))} - {number}
        candidates, what = set[int](), ""
        for file, line, function in _own(thread)[:1]:
            source, inner = _source(file), thread.frames[0]
            code, called = source.code(line), inner[2].rpartition(".")[2]
            lock, _ = source.at(line, function)
            imported = _IMPORT.fullmatch(code)
            if inner == (file, line, function) and lock:
                held = holders.get((file, lock), set())
                candidates = held & others or (held if source.locks[lock] else set())
                what = f"the lock {lock}, which %s holds"
            elif inner[0].startswith(_IMPORTLIB) and called == "acquire" and imported:
                name = imported[1] or imported[2]
                candidates = {other for other in others if _runs(threads[other], name)}
                what = f"the import of {name}, which %s runs"
            elif called in ("join", "_wait_for_tstate_lock") and _JOIN.fullmatch(code):
                candidates, what = others, "the end of %s"
            if len(candidates) == 1:
                (found[number],) = candidates
                before, _, after = what.partition("%s")
                what = f"{before}{names[found[number]]}{after}"
                words.append(f"{names[number]} waits for {what}, at {shown(f'{file}:{line}')}")
    for start in found:
        path = [start]
        while path[-1] in found and path[-1] not in path[:-1]:
            path.append(found[path[-1]])
        if path[-1] == start and path[1:]:
            return words, [names[number] for number in path[:-1]]
    return words, []


def _own(thread: Thread) -> list[tuple[str, int, str]]:
    """Return the frames of a thread that are not those of an import, or of ``threading``."""
    return [
        frame
        for frame in thread.frames
        if not (frame[0].startswith(_IMPORTLIB) or frame[0].endswith(_THREADING))
    ]


def _runs(thread: Thread, module: str) -> bool:
    path = os.sep + module.replace(".", os.sep)
    ends = f"{path}.py", f"{path}{os.sep}__init__.py"
    return any(name == "<module>" and file.endswith(ends) for file, _, name in thread.frames)


@cache
def _source(file: str) -> _Source:
    return _Source(file)


class _Source:
    """A source; an empty one for what cannot be read.

    Attributes:
        locks: Name of each lock; False if a thread may enter it again.
    """

    def __init__(self, file: str) -> None:
        try:
            text = read_bytes(file, _LARGEST)
            self._tree = ast.parse(text)
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
            text, self._tree = b"", ast.Module([], [])
        self._lines = text.decode("utf-8", "replace").splitlines()
        nodes = list(ast.walk(self._tree))
        uses = Counter(node.id for node in nodes if isinstance(node, ast.Name))
        blocks = Counter(_name_in(node) for node in nodes if isinstance(node, ast.withitem))
        # Names of parameters, imports, functions ...
        others = {getattr(node, key, None) for node in nodes for key in ("arg", "name", "asname")}
        self.locks: dict[str, bool] = {}
        for made in (node for node in self._tree.body if isinstance(node, ast.Assign)):
            lock = _LOCK.fullmatch(ast.unparse(made.value))
            name = ast.unparse(made.targets[0])
            if lock and name not in others and uses[name] == blocks[name] + 1:
                self.locks[name] = not lock[1]

    def code(self, line: int) -> str:
        """Return a line, without blanks around it."""
        return "".join(self._lines[line - 1 : line]).strip()

    def at(self, line: int, function: str) -> tuple[str, set[str]]:
        """Return the lock that is taken on a line of a function, and those that it holds there."""
        scope, taken, held = "<module>", "", set[str]()
        node: ast.AST | None = self._tree
        while node is not None:
            if isinstance(node, _SCOPES):
                scope, taken, held = getattr(node, "name", "<lambda>"), "", set()
            elif isinstance(node, ast.With):
                names = {*map(_name_in, node.items)} & self.locks.keys()
                is_inside = line > (node.items[-1].context_expr.end_lineno or line)
                held |= names if is_inside else set()
                is_entered = len(node.items) == 1 and line < node.body[0].lineno
                taken = "".join(names) if is_entered else ""
            inner = (one for one in ast.iter_child_nodes(node) if _has(one, line))
            node = next(inner, None)
        return (taken, held) if scope == function.rpartition(".")[2] else ("", set())


def _has(node: ast.AST, line: int) -> bool:
    first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
    return 0 < first <= line <= (last or 0)


def _name_in(item: ast.withitem) -> str:
    return item.context_expr.id if isinstance(item.context_expr, ast.Name) else ""
