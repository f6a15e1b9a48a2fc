"""Imports that the program will do, read from the sources of what is running.

An order that is wanted only where both modules are used costs nothing there: the second import
statement becomes the first.
"""

from __future__ import annotations

import re
import sys

from cudaguard.core.reporter import command_line
from cudaguard.files import escape, os, own_errors, program_errors, read_bytes, standard_library
from cudaguard.hooks.caller import caller_frame, is_between, module_of
from cudaguard.kernel import monotonic
from cudaguard.model import TYPE_CHECKING, NamedTuple
from cudaguard.system import peek
from cudaguard.system.source import EXITS, Code, Effect, Import, Module, absolute, parsed

if TYPE_CHECKING:
    import ast
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
    from types import FrameType
    from typing import Any

_LARGEST = 200_000  # bytes of a source that is parsed; nobody writes such files by hand
_LARGEST_READ = 2_000_000  # whose words are looked at
# What one question may cost. Amounts, so that a busy machine answers as an idle one; the clock is
# for disks that are slow.
_MOST_FILES, _MOST_READ, _MOST_PARSED, _MOST_SECONDS = 400, 1_000_000, 250_000, 2.0
_GUARD = __name__.partition(".")[0]
_DEEPEST = 50  # imports inside imports
_MOST_KEPT, _LARGEST_KEPT = 100, 50_000  # files, and bytes of one
_LINK = re.compile(
    rb"(?:^|[;:])[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]*(\([^)]{0,9999}\)|[^\n;#]*)"
    rb"|import[ \t]+([\w., \t]+))"
    rb"|(?:__import__|import_module|importorskip|run_module|run_path)\([ \t\n]*['\"]([^'\"\n]+)",
    re.MULTILINE,
)
# What is not closed ends with the line, or the text: each sign is looked at once.
_QUOTED = re.compile(
    rb"#[^\n]*|\"\"\"(?:[^\\]|\\(?:.|\Z))*?(?:\"\"\"|\Z)|'''(?:[^\\]|\\(?:.|\Z))*?(?:'''|\Z)"
    rb"|\"(?:[^\"\\\n]|\\(?:.|\Z))*(?:\"|(?=\n)|\Z)|'(?:[^'\\\n]|\\(?:.|\Z))*(?:'|(?=\n)|\Z)",
    re.DOTALL,
)
_DEF = re.compile(rb"([ \t]*)(?:async[ \t]+)?def\b")


class _Source:
    """A source as text, with the imports that its lines may be, and its tree once it is parsed."""

    def __init__(self, data: bytes) -> None:
        self.data, self.links = data, tuple(_links_in(data))
        self.tree: ast.Module | None = None


_kept: dict[str, tuple[object, _Source]] = {}  # by file, with its time and size


class ImportGraph:
    """The modules that others lead to: those of the program, and the top of installed packages.

    A source in which nothing leads to what is wanted is parsed only where it matters what else it
    does.
    """

    def __init__(
        self,
        wanted: Iterable[str],
        roots: Iterable[Module],
        loaded: Container[str] = (),  # are there, and not executed again
        watched: str = "",  # is imported now: what it does is not what others depend on
        path: Sequence[str] | None = None,  # None for where Python searches
        *,
        is_whole: bool = False,  # is all read that the roots lead to, whatever that costs?
    ) -> None:
        self._words = [name.rpartition(".")[2].encode() for name in wanted]
        self._loaded, self._path, self._watched = loaded, path, watched.partition(".")[0]
        self._found: dict[str, Module | None] = {}
        self._entered = {"__main__"}
        self._depth = 0
        self._is_whole = is_whole
        self._reaching: dict[str, set[bytes]] = {}  # words, by the sources that lead to them
        self.outdated: set[str] = set()  # files that are not what is running
        self._files = self._read = self._parsed = 0
        self._until = monotonic() + _MOST_SECONDS if path is None else float("inf")
        self._is_clean = True  # has nothing but imports, definitions and values come so far?
        self._roots = tuple(roots)
        self._survey()

    def follow(self, steps: Iterable[Import | Effect]) -> Iterator[Import | Effect]:
        """Yield some steps, and behind each import what the module does that it imports."""
        for step in steps:
            if isinstance(step, Effect):
                self._is_clean = False
            yield step
            if isinstance(step, Import):
                for name in _names_of(step):
                    yield from self._enter(name, step)

    def _enter(self, name: str, outer: Import) -> Iterator[Import | Effect]:
        if name in self._entered or name in self._loaded:
            return
        self._entered.add(name)
        if self._depth > _DEEPEST:
            yield Effect(outer.file, outer.line)
            return
        self._depth += 1
        yield from self._execute(name, outer)
        self._depth -= 1

    def _execute(self, name: str, outer: Import) -> Iterator[Import | Effect]:
        module = self.find(name)
        if module is None or not (module.file or module.source):
            return
        is_package = module.is_installed or name.partition(".")[0] == self._watched
        if (is_package or not self._is_clean) and not self.reaches(module):
            return
        if (code := self.code(module)) is None:
            yield from self._unread(module, outer)
            return
        is_clean = True
        inside = (
            step.replace(
                branch=(*outer.branch, *step.branch), is_likely=outer.is_likely or step.is_likely
            )
            if isinstance(step, Import)
            else step
            for step in code.steps()
        )
        for step in self.follow(inside):
            if not isinstance(step, Effect):
                yield step.replace(is_likely=step.is_likely or not is_clean)
            elif not is_package:
                yield step
            elif step.file == module.file:
                # What comes behind it in this file may depend on it; the program does not.
                is_clean, self._is_clean = False, True

    def _unread(self, module: Module, outer: Import) -> Iterator[Import | Effect]:
        """Yield what a source names that is too large, or is no Python."""
        text = self._text(module)
        for name, _ in text.links:
            if name.rpartition(".")[2].encode() in self._words:
                line = text.data[: text.data.find(name.encode())].count(b"\n") + 1
                yield Import(
                    name, name, line, line, file=module.file, branch=outer.branch, is_likely=True
                )
        if not (module.is_installed or module.name.partition(".")[0] == self._watched):
            yield Effect(module.file, 1)

    def later(self) -> Iterator[Import]:
        """Yield what the functions import, of the program's modules and of all that these lead to.

        So is all that modules import which are not there yet.
        """
        todo = [module for module in self._roots if not module.is_installed]
        seen = {module.file for module in todo}
        while todo:
            module = todo.pop(0)
            if not self.reaches(module) or module.file in self.outdated:
                continue
            text = self._text(module)
            code = self.code(module) if any(word in text.data for word in self._words) else None
            if code is not None:
                is_done = module.name in self._loaded or module.name in self._entered
                at_import = [step for step in code.steps() if isinstance(step, Import)]
                steps = [*([] if is_done else at_import), *code.later()]
                yield from (step for step in steps if isinstance(step, Import))
            for other in self._links(module):
                if other.file not in seen and not other.is_installed:
                    seen.add(other.file)
                    todo.append(other)

    def reaches(self, module: Module) -> bool:
        """Return True if a source may lead to what is wanted, by the words in it."""
        return bool(self.words(module))

    def words(self, module: Module) -> set[bytes]:
        """Return the last parts of those wanted names that a source may lead to."""
        return self._reaching.get(module.file or module.name, set())

    def _survey(self) -> None:
        """Find the sources that lead to one with a word that is wanted."""
        importers: dict[str, list[str]] = {}
        hits: list[tuple[str, bytes]] = []
        surveyed: set[str] = set()
        # The program's own come first: what is left of the budget is for packages.
        own = [module for module in self._roots if not module.is_installed]
        packages = [module for module in self._roots if module.is_installed]
        while own or packages:
            module = (own or packages).pop(0)
            key = module.file or module.name
            if key in surveyed:
                continue
            surveyed.add(key)
            data = self._text(module).data
            hits += [(key, word) for word in self._words if word in data]
            for other in self._links(module):
                importers.setdefault(other.file or other.name, []).append(key)
                (packages if other.is_installed else own).append(other)
        while hits:
            key, word = hits.pop()
            reached = self._reaching.setdefault(key, set())
            if word not in reached:
                reached.add(word)
                hits += [(importer, word) for importer in importers.get(key, ())]

    def _links(self, module: Module) -> Iterator[Module]:
        """Yield the modules that a source may import: any line of it that looks like that."""
        for name, may_be_name in self._text(module).links:
            if name.endswith(".py"):
                file = os.path.join(os.path.dirname(module.file), name)
                yield Module(f"<{name}>", "", file if os.path.isfile(file) else name)
                continue
            level = len(name) - len(name.lstrip("."))
            full = absolute(name[level:], level, module.package)
            if module.is_installed and full.partition(".")[0] == module.package.partition(".")[0]:
                continue  # of an installed package, the top alone
            names = [full] if may_be_name else _with_parents(full)
            yield from filter(None, map(self.find, names))

    # --- finding and reading ---------------------------------------------------------------------

    def find(self, name: str) -> Module | None:
        """Return a module, loaded or not; None for Python's, and if none is found."""
        top = name.partition(".")[0]
        if top in ("", _GUARD) or top in standard_library():
            return None
        if name not in self._found:
            self._found[name] = None
            if monotonic() > self._until:
                return None
            self._found[name] = self._search(name)
        return self._found[name]

    def _search(self, name: str) -> Module | None:
        from importlib.machinery import PathFinder

        there = sys.modules.get(name) if name in self._loaded else None
        if there is not None:
            file, folders = peek(there, "__file__"), peek(there, "__path__")
            package = name if folders is not None else name.rpartition(".")[0]
            file = file if isinstance(file, str) else ""
            return Module(name, package, file, tuple(folders or ()))
        parent = name.rpartition(".")[0]
        above = self.find(parent) if parent else None
        if parent and (above is None or not above.folders):
            return None
        path = list(above.folders) if above is not None else self._path
        try:
            spec = PathFinder.find_spec(name, path)
            for finder in sys.meta_path if spec is None and path is None else ():
                kind = finder if isinstance(finder, type) else type(finder)
                if kind.__module__.startswith("__editable__"):
                    spec = finder.find_spec(name, None)
            loader: Any = spec and spec.loader
            source = loader.get_source(name) if hasattr(loader, "archive") else None
        except program_errors(Exception):  # what lies on the path is not ours
            return None
        if spec is None:
            return None
        folders = tuple(spec.submodule_search_locations or ())
        file = spec.origin if spec.origin and spec.origin.endswith((".py", ".pyw")) else ""
        return Module(name, name if folders else parent, file, folders, source)

    def _text(self, module: Module) -> _Source:
        data: object = module.source
        try:
            state = os.stat(module.file) if data is None else None
        except own_errors(OSError, ValueError):
            return _NOTHING
        stamp = (state.st_mtime_ns, state.st_size) if state else data
        kept = _kept.get(module.file)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        is_spent = self._files >= _MOST_FILES or self._read >= _MOST_READ
        if (is_spent and not self._is_whole) or monotonic() > self._until:
            return _NOTHING
        self._files += 1
        try:
            data = module.source if state is None else read_bytes(module.file, _LARGEST_READ)
        except own_errors(OSError, ValueError):
            return _NOTHING
        source = _Source(data.encode("utf-8", "replace") if isinstance(data, str) else data or b"")
        self._read += len(source.data)
        if len(source.data) <= _LARGEST_KEPT:
            if len(_kept) >= _MOST_KEPT:
                _kept.clear()
            _kept[module.file] = (stamp, source)
        return source

    def code(self, module: Module) -> Code | None:
        """Return the code of a module; None if it has none that can be read."""
        source = self._text(module)
        may_be_parsed = source is not _NOTHING and len(source.data) <= _LARGEST
        is_spent = self._parsed > _MOST_PARSED or monotonic() > self._until
        if source.tree is None and may_be_parsed and not is_spent:
            text = _without_functions(source.data)
            self._parsed += len(text)
            try:
                try:
                    source.tree = parsed(text, module.file)
                except own_errors(SyntaxError):  # of another form than most
                    source.tree = parsed(source.data, module.file)
            except own_errors(SyntaxError, ValueError, RecursionError, MemoryError):
                return None
        return None if source.tree is None else Code(source.tree, module)


def _without_functions(data: bytes) -> bytes:
    """Return a source without the bodies of functions that import nothing, each line in its place.

    They are most of it, and to parse them is most of what an answer costs.
    """
    # A comment as nothing and a string as a word, in as many lines.
    blanked = _QUOTED.sub(lambda q: b"_"[q[0][:1] == b"#" :] + b"\n" * q[0].count(b"\n"), data)
    lines, code = data.split(b"\n"), blanked.split(b"\n")
    at = 0
    while at < len(code):
        head, first = _DEF.match(code[at]), at + 1
        if head:
            while first < min(len(code), at + 99) and _is_open(code[at:first]):
                first += 1
            has_block = code[first - 1].rstrip().endswith(b":")
            at = first
            while has_block and at < len(code) and not _is_behind(code[at], len(head[1])):
                at += 1
            if at > first and not any(
                b"import" in line or b"run_" in line for line in lines[first:at]
            ):
                lines[first:at] = [head[1] + b" pass", *[b""] * (at - first - 1)]
        at = max(at, first)
    return b"\n".join(lines)


def _is_open(lines: list[bytes]) -> bool:
    """Return True if a bracket of some lines is not closed in them."""
    code = b"".join(lines)
    return sum(map(code.count, (b"(", b"[", b"{"))) > sum(map(code.count, (b")", b"]", b"}")))


def _is_behind(line: bytes, indent: int) -> bool:
    """Return True for a line that is not of a block whose head is indented so far."""
    begin = line.lstrip()
    return len(line) - len(begin) <= indent and begin[:1] not in (b"", b")", b"]", b"}")


def _links_in(data: bytes) -> Iterator[tuple[str, bool]]:
    """Yield the modules that a text may import, as it spells them."""
    for match in _LINK.finditer(data):
        module, names, modules, called = (
            part.decode("utf-8", "replace") if part else "" for part in match.groups()
        )
        if module:
            yield module, False
            for name in re.findall(r"(\w+)(?:\s+as\s+\w+)?", names):
                yield f"{module}.{name}" if module.strip(".") else f"{module}{name}", True
        elif called:
            yield called, False
        else:
            for name in modules.split(","):
                yield name.split()[0] if name.split() else "", False


def _with_parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[: count + 1]) for count in range(len(parts))]


def _names_of(step: Import) -> list[str]:
    """Return the modules that an import executes, in order; the last may be none."""
    if step.call and step.module.endswith(".py"):
        return []
    return list(dict.fromkeys((*_with_parents(step.module), step.name)))


_NOTHING = _Source(b"")


# --- What the program will import -----------------------------------------------------------------

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
    for module in graph.later() if wanted > certain | likely.keys() else ():
        for name in filter(module.brings, wanted - certain - likely.keys()):
            likely[name] = f"{module.file}:{module.line}"
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
        if (code := graph.code(module)) is None:
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
    from glob import glob

    own = dict.fromkeys(os.path.dirname(m.file) for m in modules if not m.is_installed)
    paths = [os.path.join(escape(folder), pattern) for folder in own for pattern in _OF_TESTS]
    files = [file for path in paths for file in sorted(glob(path))]
    return [Module(os.path.basename(file)[:-3], "", file) for file in files]
