"""Which threads of a process wait for each other, as far as stacks and sources prove it.

A thread at ``with NAME:`` waits for that lock if another one, or itself, is in such a block. NAME
is a lock if the file binds it once, and uses it in ``with`` alone.
"""

from __future__ import annotations

import ast
import os
from collections import Counter
from functools import cache
from typing import NamedTuple

from cudaguard.files import read_bytes
from cudaguard.tools.run.record import Thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cudaguard.tools.run.record import FaultDump, Frames

_LARGEST = 1 << 20  # bytes of a source
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_THREADING, _IMPORTLIB = f"{os.sep}threading.py", "<frozen importlib"


class Waits(NamedTuple):
    """What threads wait for."""

    words: tuple[str, ...] = ()  # of each that waits for one, as in ``A waits for the end of B``
    circle: tuple[str, ...] = ()  # the names of those that wait for each other


def waits_of(dump: FaultDump, shown: Callable[[str], str]) -> Waits:
    """Return who waits for whom; `shown` is what makes words of ``file:line``."""
    threads = [Thread(dump.thread, dump.name, dump.frames), *dump.others]
    names = [thread.name or _target_of(thread.frames) for thread in threads]
    holders: dict[tuple[str, str], list[int]] = {}
    for number, thread in enumerate(threads):
        held = {(f[0], name) for f in thread.frames for name in _Source.of(f[0]).at(*f[1:])[1]}
        for lock in held:
            holders.setdefault(lock, []).append(number)
    found: dict[int, tuple[int, str]] = {}
    for number, thread in enumerate(threads):
        others = [other for other in range(len(threads)) if other != number]
        for holder, words, where in _candidates(thread.frames, threads, others, holders):
            said = f"{names[number]} waits for {words.format(names[holder])}"
            found[number] = holder, f"{said}, at {shown(where)}"
    circle: list[int] = []
    for start in found:
        path = [start]
        while path[-1] in found and path[-1] not in path[:-1]:
            path.append(found[path[-1]][0])
        if len(path) > 1 and path[-1] == start and not circle:
            circle = path[:-1]
    return Waits(tuple(words for _, words in found.values()), tuple(names[n] for n in circle))


def _candidates(
    frames: Frames,
    threads: list[Thread],
    others: list[int],
    holders: dict[tuple[str, str], list[int]],
) -> Iterator[tuple[int, str, str]]:
    """Yield for which thread another one waits, in words, and ``file:line``."""
    skipped = (_IMPORTLIB, "<frozen _frozen") if _is_at(frames, _IMPORTLIB, "acquire") else ()
    outer = [
        one for one in frames if not (one[0].endswith(_THREADING) or one[0].startswith(skipped))
    ]
    if not outer:
        return
    file, line, function = outer[0]
    source, where = _Source.of(file), f"{file}:{line}"
    taken = source.at(line, function)[0] if outer[0] == frames[0] else ""
    held_by = holders.get((file, taken), [])
    if len(held_by) == 1 and (held_by[0] in others or source.locks[taken] == "Lock()"):
        yield held_by[0], f"the lock {taken}, which {{}} holds", where
    nodes = [node for node in source.nodes if getattr(node, "lineno", 0) == line]
    if skipped:
        modules = [alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names]
        modules += [n.module or "" for n in nodes if isinstance(n, ast.ImportFrom) and not n.level]
        path = os.sep + "".join(modules).replace(".", os.sep)
        ends = (f"{path}.py", f"{path}{os.sep}__init__.py")
        running = [
            n for n in others
            if any(f == "<module>" and name.endswith(ends) for name, _, f in threads[n].frames)
        ]  # fmt: skip
        if len(modules) == len(running) == 1:
            yield running[0], f"the import of {modules[0]}, which {{}} runs", where
    # Of two threads, one that joins a thread without a limit joins the other.
    calls = [n for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    joins = [n for n in calls if n.func.attr == "join" and not (n.args or n.keywords)]  # type: ignore[attr-defined]
    is_joining = any(_is_at(frames, "", name) for name in ("join", "_wait_for_tstate_lock"))
    if is_joining and frames[0] != outer[0] and len(joins) == len(others) == 1:
        yield others[0], "the end of {}", where


def _is_at(frames: Frames, file: str, function: str) -> bool:
    return any(f[0].startswith(file) and _last(f[2]) == function for f in frames[:1])


def _last(function: str) -> str:
    return function.rpartition(".")[2]


def _target_of(frames: Frames) -> str:
    outer = [function for file, _, function in frames if not file.endswith(_THREADING)]
    return f"a thread in {outer[-1]}" if outer else "a thread"


class _Source:
    """The locks of a source; none of one that cannot be read."""

    def __init__(self, file: str) -> None:
        try:
            self._tree = ast.parse(read_bytes(file, _LARGEST))
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
            self._tree = ast.Module([], [])
        self.nodes = list(ast.walk(self._tree))
        uses = Counter(node.id for node in self.nodes if isinstance(node, ast.Name))
        blocks = Counter(_name_in(n) for n in self.nodes if isinstance(n, ast.withitem))
        # Names of parameters, imports, functions ...
        others = {getattr(n, key, None) for n in self.nodes for key in ("arg", "name", "asname")}
        made = [
            (target.id, ast.unparse(node.value).rpartition("threading.")[2])
            for node in self._tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name) and uses[target.id] == blocks[target.id] + 1
        ]
        kinds = ("Lock()", "RLock()")
        self.locks = {n: kind for n, kind in made if kind in kinds and n not in others}

    @staticmethod
    @cache
    def of(file: str) -> _Source:
        """Return a source, read once."""
        return _Source(file)

    def at(self, line: int, function: str) -> tuple[str, set[str]]:
        """Return the lock that is taken on a line of a function, and those that it holds there."""
        scope, taken, held = "<module>", "", set[str]()
        node: ast.AST | None = self._tree
        while node is not None:
            if isinstance(node, _SCOPES):
                scope, taken, held = getattr(node, "name", "<lambda>"), "", set()
            elif isinstance(node, ast.With):
                names = [*map(_name_in, node.items)]
                locks = set(self.locks).intersection(names)
                is_inside = line > (node.items[-1].context_expr.end_lineno or line)
                held |= locks if is_inside else set()
                taken = "".join(locks) if len(names) == 1 and line < node.body[0].lineno else ""
            inner = (one for one in ast.iter_child_nodes(node) if _has(one, line))
            node = next(inner, None)
        return (taken, held) if scope == _last(function) else ("", set())


def _has(node: ast.AST, line: int) -> bool:
    first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
    return 0 < first <= line <= (last or 0)


def _name_in(item: ast.withitem) -> str:
    return item.context_expr.id if isinstance(item.context_expr, ast.Name) else ""
