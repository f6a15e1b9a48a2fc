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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cudaguard.tools.run.record import FaultDump

_LARGEST = 1 << 20  # bytes of a source
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_LOCK = re.compile(r"(?:threading\.)?(R?)Lock\(\)")
_STATEMENT = re.compile(r"import ([\w.]+)(?: as \w+)?|from (\w[\w.]*) import .*")
_JOIN = re.compile(r"[\w.]+\.join\(\)")
_IMPORT, _THREADING = "<frozen importlib", f"{os.sep}threading.py"


def waits_of(dump: FaultDump, shown: Callable[[str], str]) -> tuple[list[str], list[str]]:
    """Return who waits for whom, in words; and the names of those that wait for each other.

    `shown` makes words of ``file:line``.
    """
    stacks = [dump.frames, *(other.frames for other in dump.others)]
    names = [dump.name, *(other.name for other in dump.others)]
    threads = [*enumerate(stacks)]
    holders: dict[tuple[str, str], set[int]] = {}
    for number, frames in threads:
        for file, line, function in frames:
            for lock in _source(file).at(line, function)[1]:
                holders.setdefault((file, lock), set()).add(number)
    found: dict[int, tuple[int, str, str]] = {}
    for number, frames in threads:
        outside = [f for f in frames if not (f[0].startswith(_IMPORT) or f[0].endswith(_THREADING))]
        names[number] = names[number] or f"a thread in {''.join(f[2] for f in outside[-1:])}"
        others = {*range(len(threads))} - {number}
        for file, line, function in outside[:1]:
            source, called = _source(file), frames[0][2].rpartition(".")[2]
            code, lock = source.code(line), source.at(line, function)[0]
            statement = _STATEMENT.fullmatch(code)
            candidates, what = set[int](), "the end of %s"
            if frames[0] == (file, line, function) and lock:
                held = holders.get((file, lock), set())
                candidates = held & others or (held if source.locks[lock] else set())
                what = f"the lock {lock}, which %s holds"
            elif frames[0][0].startswith(_IMPORT) and called == "acquire" and statement:
                name = statement[1] or statement[2]
                path = os.sep + name.replace(".", os.sep)
                ends = f"{path}.py", f"{path}{os.sep}__init__.py"
                runs = ((n, f) for n in others for f in stacks[n] if f[2] == "<module>")
                candidates = {n for n, frame in runs if frame[0].endswith(ends)}
                what = f"the import of {name}, which %s runs"
            elif called in ("join", "_wait_for_tstate_lock") and _JOIN.fullmatch(code):
                candidates = others
            if len(candidates) == 1:
                found[number] = min(candidates), what, shown(f"{file}:{line}")
    words = []
    for number, (holder, what, where) in found.items():
        first, _, last = what.partition("%s")
        words.append(f"{names[number]} waits for {first}{names[holder]}{last}, at {where}")
    for start in found:
        chain = [start]
        while chain[-1] in found and chain[-1] not in chain[:-1]:
            chain.append(found[chain[-1]][0])
        if chain[-1] == start and chain[1:]:
            return words, [names[number] for number in chain[:-1]]
    return words, []


class _Source:
    """A source; an empty one for what cannot be read.

    `locks`: the name of each lock; False if a thread may enter it again.
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
        node: Any = self._tree
        while node is not None:
            if isinstance(node, _SCOPES):
                scope, taken, held = getattr(node, "name", "<lambda>"), "", set()
            elif isinstance(node, ast.With):
                names = {*map(_name_in, node.items)} & self.locks.keys()
                is_inside = line > (node.items[-1].context_expr.end_lineno or line)
                held |= names if is_inside else set()
                is_entered = len(node.items) == 1 and line < node.body[0].lineno
                taken = "".join(names) if is_entered else ""
            inner = (
                n for n in ast.iter_child_nodes(node) if getattr(n, "lineno", line + 1) <= line
            )
            node = next((n for n in inner if line <= (n.end_lineno or 0)), None)  # type: ignore[attr-defined]
        return (taken, held) if scope == function.rpartition(".")[2] else ("", set())


def _name_in(item: ast.withitem) -> str:
    return getattr(item.context_expr, "id", "")


_source = cache(_Source)
