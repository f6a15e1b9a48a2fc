"""Report imports in an order that a rule forbids, and what the guard would do about each.

Nothing is run or imported. Reads Python files, and the modules of the project that
they import. What stands under `if TYPE_CHECKING` is left out.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from glob import escape, glob
from typing import NamedTuple

from cudaguard.api import active_rules
from cudaguard.config import read_environment
from cudaguard.core.decide import may_apply
from cudaguard.core.findings import counted
from cudaguard.core.import_plan import ImportGraph
from cudaguard.core.settings import checked_file
from cudaguard.files import text_in
from cudaguard.files.layout import Page
from cudaguard.files.text import printable_data
from cudaguard.model import TYPE_CHECKING
from cudaguard.system.facts import Facts
from cudaguard.system.packages import key_of
from cudaguard.system.source import Effect, Import, Source, module_of_file, read, syntax_problem
from cudaguard.tools.common import BROKEN, FOUND, OK, UsageError, add_format, json_text, note, show
from cudaguard.tools.explain import RULES

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from cudaguard.core.rule import Rule

SPLIT = "# isort: split"  # what has isort and ruff sort what stands above and below it apart
_INDENT = 4  # columns before the parts of a finding
_PIN = re.compile(
    r"""(?:^|["'])[ \t]{0,9}([A-Za-z0-9][\w.-]{0,99})(?:\[[^\]\n]{0,99}\])?"""
    r"[ \t]{0,9}==[ \t]{0,9}([\w.!+]+)",
    re.MULTILINE,
)
_SKIPPED_FOLDERS = frozenset(("__pycache__", "node_modules", "site-packages"))
_ENVIRONMENTS = ("pyvenv.cfg", "conda-meta")  # in their folders

# What the guard does at the import that comes too early.
_DOES = {
    "imports": "imports {0} first",
    "warns": "only warns: that may never be imported, or depend on what is done in between",
}


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("path", nargs="+", metavar="PATH", help="a file, or a folder to search")
    add_format(parser, "show which rules were checked", config=True)


def execute(args: Namespace) -> int:
    """Read, print what was found, and return the exit status."""
    for path in args.path:
        if not os.path.exists(path):
            raise UsageError(f"{path}: there is no such file or folder")
    rules = _rules(Versions(args.path))
    files = list(dict.fromkeys(file for path in args.path for file in files_below(path)))
    project = Project(args.path, rules)
    found = list(project.findings(files))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes that Python does not know
        problems = [f"{file}: {why}" for file in files if (why := project.problem(file))]
    for problem in problems:
        note("lint", problem)
    if args.format == "json":
        counts = {"files": len(files), "unreadable": len(problems)}
        show(json_text({"tool": "lint", **counts, "findings": found}))
    else:
        for finding in found:
            page, data = Page(sys.stdout), printable_data(finding)
            page.add(f"{data['path']}:{data['line']}: {data['rule']} {data['what']}", style="bold")
            page.labeled("because", data["why"], _INDENT)
            for number, line in enumerate(data["write"]):
                page.add("", _INDENT, lead="     " if number else "fix: ", whole=line)
            does = _DOES[data["guard"]].format(data["needed"]["module"])
            page.labeled("more", f"cudaguard {does}", _INDENT)
            show(str(page))
        if args.verbose:
            show(f"checked: {', '.join(rule.id for rule in rules)}")
        if not args.quiet:
            note("lint", f"{counted(len(found), 'findings')} in {counted(len(files), 'files')}")
    return BROKEN if problems else FOUND if found else OK


def files_below(path: str) -> list[str]:
    """Return the file itself, or the Python files of a folder, sorted.

    Hidden folders, environments and installed packages are left out.
    """
    if not os.path.isdir(path):
        return [path]
    found: list[str] = []
    # To read as a file what cannot be listed tells why.
    for root, folders, names in os.walk(path, onerror=lambda error: found.append(error.filename)):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in _SKIPPED_FOLDERS
            and not any(os.path.exists(os.path.join(root, name, sign)) for sign in _ENVIRONMENTS)
        ]
        files = (os.path.join(root, n) for n in names if n.endswith(".py"))
        # A pipe would be read for ever; a link into nowhere is how Emacs marks what is edited.
        found.extend(filter(os.path.isfile, files))
    return sorted(found)


class Versions(Facts):
    """Facts about where the program will run, as far as its project tells."""

    def __init__(self, paths: Iterable[str]) -> None:
        super().__init__()
        folders = {path if os.path.isdir(path) else os.path.dirname(path) for path in paths}
        patterns = ("pyproject.toml", "requirements*.txt")
        files = (f for d in folders for p in patterns for f in glob(os.path.join(escape(d), p)))
        pins = (pin for file in files for pin in _PIN.findall(text_in(file)))
        self._pinned = {key_of(name): version for name, version in pins}

    def version(self, dist: str) -> str | None:
        """Return the version of a distribution, None if it is not known."""
        return self._pinned.get(key_of(dist)) or super().version(dist)


def _rules(facts: Facts) -> list[Rule]:
    """Return the rules whose order is checked; raises what is wrong with the configuration file."""
    said, _ = read_environment(os.environ)
    switches = {**(checked_file(said.config).switches if said.config else {}), **said.switches}
    active = active_rules()
    ids = {rule.id for rule in active}
    # Those that are off change programs; to tell of them changes nothing.
    off = [rule for rule in RULES if rule.id not in ids and switches.get(rule.id, True)]
    # What is switched on is kept wherever it stands.
    on = [r.replace(grade="automatic") if switches.get(r.id) else r for r in active]
    return [rule for rule in (*on, *off) if rule.needs and may_apply(rule, facts)]


class Project:
    """Reads the files of a project, each once."""

    def __init__(self, paths: Iterable[str], rules: Sequence[Rule]) -> None:
        folders = [path for path in paths if os.path.isdir(path)]
        self._folders = [*folders, *(os.path.join(path, "src") for path in folders)]
        self._rules = rules
        self._pairs = {pair for rule in rules for pair in _pairs(rule)}
        self._wanted = {name for pair in self._pairs for name in pair}
        self._sources: dict[str, Source] = {}

    def source(self, file: str) -> Source:
        """Return what was read of a file."""
        if file not in self._sources:
            self._sources[file] = read(file)
        return self._sources[file]

    def problem(self, file: str) -> str:
        """Return why a file cannot be read, empty if it can."""
        return self._sources[file].problem if file in self._sources else syntax_problem(file)

    def _worth_reading(self, files: Iterable[str]) -> Iterator[str]:
        """Yield the files that may lead to both modules of some rule, by their words."""
        modules = {file: module_of_file(file) for file in files}
        graphs = {
            folders: ImportGraph(
                self._wanted, [module for module in modules.values() if module.folders == folders],
                path=[*folders, *self._folders], is_whole=True,
            )
            for folders in dict.fromkeys(module.folders for module in modules.values())
        }  # fmt: skip
        pairs = [[name.rpartition(".")[2].encode() for name in pair] for pair in self._pairs]
        for file, module in modules.items():
            # A relative import names its own package, too.
            there = graphs[module.folders].words(module) | {*module.package.encode().split(b".")}
            if any(there.issuperset(pair) for pair in pairs):
                yield file

    def findings(self, files: Iterable[str]) -> Iterator[dict[str, Any]]:
        """Yield what is in the wrong order in some files, and in what they import."""
        files = list(files)
        given = {os.path.abspath(file): file for file in files}

        def named(statement: Import) -> str:
            return given.get(os.path.abspath(statement.file), statement.file)

        known = set()
        for file in self._worth_reading(files):
            for wrong in misplaced(self.steps(file), self._rules):
                place = named(wrong.then), wrong.then.line, wrong.rule.id
                sides = (wrong.then, wrong.first)
                if place not in known and not any(
                    self.source(side.file).is_silenced(wrong.rule.id, side) for side in sides
                ):
                    known.add(place)
                    yield _finding(wrong, named)

    def steps(self, file: str) -> list[Import | Effect]:
        """Return what a file imports and does, and what it imports does."""
        if (code := self.source(file).code) is None:
            return []
        path = [*code.module.folders, *self._folders]
        graph = ImportGraph(self._wanted, (code.module,), path=path)
        if graph.reaches(code.module):
            return [*graph.follow(code.steps()), *graph.later()]
        return [*code.steps(), *code.later()]


class Misplaced(NamedTuple):
    """Two statements in the wrong order."""

    rule: Rule  # that forbids it
    first: Import  # must come first, and comes second
    then: Import  # comes too early
    needed: str  # the module that the rule wants first
    early: str  # the module that is imported too early
    is_kept: bool  # the guard would keep the order, else it warns


def misplaced(steps: Sequence[Import | Effect], rules: Iterable[Rule]) -> list[Misplaced]:
    """Return what is in the wrong order, by the place of what comes too early."""
    found = [
        wrong
        for rule in rules
        for needed, early in _pairs(rule)
        for wrong in _of_pair(steps, rule, needed, early)
    ]
    return sorted(found, key=lambda wrong: (wrong.then.file, wrong.then.line))


def _pairs(rule: Rule) -> Iterator[tuple[str, str]]:
    """Yield (first, then) for each order that a rule asks for."""
    needs = [name for name in rule.needs if name != "context"]  # no import brings one
    yield from zip(needs, needs[1:])
    for watched in rule.watch:
        yield from ((need, watched) for need in needs)


def _of_pair(
    steps: Sequence[Import | Effect], rule: Rule, needed: str, early: str
) -> Iterator[Misplaced]:
    imports = [(place, step) for place, step in enumerate(steps) if isinstance(step, Import)]
    bringing = [(place, step) for place, step in imports if step.brings(needed)]
    reported: list[Import] = []
    for place, then in imports:
        if not then.brings(early) or any(not statement.excludes(then) for statement in reported):
            continue
        brought = [(at, step) for at, step in bringing if not step.excludes(then)]
        if brought and brought[0][0] > place:
            at, first = brought[0]
            is_clean = not any(isinstance(step, Effect) for step in steps[place:at])
            is_certain = is_clean and not first.is_likely and {*first.branch} <= {*then.branch}
            is_kept = rule.grade == "automatic" or (rule.grade == "opt-in" and is_certain)
            reported.append(then)
            yield Misplaced(rule, first, then, needed, early, is_kept)


def _finding(misplaced: Misplaced, named: Callable[[Import], str]) -> dict[str, Any]:
    """Return one finding as the JSON document has it."""
    rule, first, then = misplaced.rule, misplaced.first, misplaced.then
    is_here = first.file == then.file
    place = f"on line {first.line}" if is_here else f"at {named(first)}:{first.line}"
    return {
        "path": named(then),
        "line": then.line,
        "rule": rule.id,
        "what": f"{misplaced.early} is imported before {misplaced.needed}, which follows {place}",
        "guard": "imports" if misplaced.is_kept else "warns",
        "why": rule.why,
        "needed": {"module": misplaced.needed, "path": named(first), "line": first.line},
        "write": [_statement(first), SPLIT, _statement(then)],
        "links": list(rule.links),
    }


def _statement(statement: Import) -> str:
    if statement.call:
        return statement.call
    if not statement.is_from:
        return f"import {statement.name}"
    name = statement.name[len(statement.module) + 1 :] or "*"
    return f"from {statement.module} import {name}"
