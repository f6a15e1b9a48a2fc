"""What the program will import, by the sources of whatever is running just now.

An order that is wanted only where both modules are used costs nothing there: the second import
statement becomes the first.
"""

from __future__ import annotations

import sys

from cudaguard.core.reporter import command_line
from cudaguard.files import os, own_errors
from cudaguard.hooks.caller import caller_frame, is_between, module_of
from cudaguard.model import NamedTuple
from cudaguard.system.import_graph import ImportGraph
from cudaguard.system.modules import peek
from cudaguard.system.source import EXITS, Code, Effect, Import, Module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import FrameType
    from typing import Any

_MOST_FRAMES = 50
_TRANSPARENT = ("importlib", "runpy")  # what they call, their caller has called
_OF_TESTS = ("test_*.py", "*_test.py")


class Upcoming(NamedTuple):
    """Modules that will be imported, those `likely` with ``file:line``.

    What is certain stands behind nothing but imports, definitions and values: to import it now
    changes nothing.
    """

    certain: frozenset[str] = frozenset()
    likely: Mapping[str, str] = {}  # never changed


def upcoming(wanted: frozenset[str], watched: str) -> Upcoming:
    """Return which modules the program will import, that are not there while one is imported."""
    frames = _frames(caller_frame())
    modules = [_module(frame) for frame in frames]
    roots = list(modules)
    main = peek(sys.modules.get("__main__"), "__file__")  # other threads have it on their stack
    if isinstance(main, str) and main not in (module.file for module in roots):
        roots.append(Module("__main__", "", main))
    if any(module.name.partition(".")[0] == "_pytest" for module in modules):
        roots += _tests_beside(modules)
    graph = ImportGraph(wanted, roots, sys.modules, watched)
    if not any(map(graph.reaches, roots)):
        return Upcoming()
    try:
        return _judged(graph, _following(zip(frames, modules), graph), wanted)
    except own_errors(RecursionError):  # of sources that are nested very deeply
        return Upcoming()


def _judged(
    graph: ImportGraph, following: Iterator[Import | Effect], wanted: frozenset[str]
) -> Upcoming:
    certain: set[str] = set()
    likely: dict[str, str] = {}
    is_clean = True
    for step in graph.follow(following):
        if isinstance(step, Effect):
            is_clean = False
            continue
        for name in filter(step.brings, wanted - certain):
            if is_clean and not (step.is_likely or step.branch):
                certain.add(name)
                likely.pop(name, None)
            else:
                likely.setdefault(name, f"{step.file}:{step.line}")
    for one in graph.later() if wanted > certain | likely.keys() else ():
        for name in filter(one.brings, wanted - certain - likely.keys()):
            likely[name] = f"{one.file}:{one.line}"
    return Upcoming(frozenset(certain), likely)


def _frames(frame: FrameType | None) -> list[FrameType]:
    """Return the frames from here outwards that are the program's, or of packages that it uses."""
    found: list[FrameType] = []
    while frame is not None and len(found) < _MOST_FRAMES:
        if not (is_between(frame) or module_of(frame).partition(".")[0] in _TRANSPARENT):
            found.append(frame)
        frame = frame.f_back
    return found


def _following(
    running: Iterable[tuple[FrameType, Module]], graph: ImportGraph
) -> Iterator[Import | Effect]:
    """Yield what is executed when the import that is under way has ended."""
    calls_own = True
    for frame, module in running:
        if module.is_installed and frame.f_code.co_name != "<module>":
            calls_own = False
            continue
        code = graph.code(module)
        if code is None:
            yield Effect(module.file, frame.f_lineno)
        elif module.is_installed:
            yield from _in_package(code, frame)
        else:
            ends = yield from code.rest(frame.f_code, frame.f_lineno, calls_own=calls_own)
            if code.is_outdated:
                graph.outdated.add(module.file)
            if ends == EXITS:
                return
        calls_own = not module.is_installed


def _in_package(code: Code, frame: FrameType) -> Iterator[Import]:
    """Yield the imports that follow in a package: those behind an effect of it may depend on it."""
    is_clean = True
    for step in code.rest(frame.f_code, frame.f_lineno, calls_own=False):
        if isinstance(step, Effect):
            is_clean = False
        else:
            yield step if is_clean else step.replace(is_likely=True)


def _module(frame: FrameType) -> Module:
    """Return the module whose code runs in a frame."""
    name, file = module_of(frame), frame.f_code.co_filename
    package = frame.f_globals.get("__package__")
    package = package if isinstance(package, str) else ""
    return Module(name, package, file, source=_source(frame, name, file))


def _source(frame: FrameType, name: str, file: str) -> str | None:
    """Return a source that is in no file: a cell, an argument of Python, a part of an archive."""
    cached = (peek(sys.modules.get("linecache"), "cache") or {}).get(file)
    if isinstance(cached, tuple) and len(cached) == 4 and cached[1] is None:
        return "".join(cached[2])
    if file == "<string>" and name == "__main__":
        words = command_line()
        return next((code for option, code in zip(words, words[1:]) if option == "-c"), None)
    loader: Any = frame.f_globals.get("__loader__")
    if type(loader).__module__ == "zipimport":
        try:
            source: str | None = loader.get_source(name)
            return source
        except own_errors(ImportError):
            pass
    return None


def _tests_beside(modules: list[Module]) -> list[Module]:
    """Return the tests in the folders of some tests: they are collected one after the other."""
    from glob import escape, glob

    own = dict.fromkeys(os.path.dirname(one.file) for one in modules if not one.is_installed)
    paths = [os.path.join(escape(folder), pattern) for folder in own for pattern in _OF_TESTS]
    files = [file for path in paths for file in sorted(glob(path))]
    return [Module(os.path.basename(file)[:-3], "", file) for file in files]
