"""Report import statements whose order a rule forbids, without running or importing anything.

Reads Python files and notebooks. What functions import is left out, as it runs later or never, and
so is what stands under `if TYPE_CHECKING`.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from cudaguard.tools.common import BROKEN, FOUND, OK, UsageError, add_format, json_text, note, show
from cudaguard.tools.layout import Page

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from cudaguard.model import Rule
    from cudaguard.system.source import Import

SPLIT = "# isort: split"  # what has isort and ruff sort what stands above and below it apart
CONTEXT = "context"  # a rule may need one; no import brings it
_INDENT = 4  # columns before the parts of a finding
EXAMPLES = """\
examples:
  cudaguard lint src train.py                  everything below src, and one file
  cudaguard lint --config cudaguard.toml .     with rules of your own
  cudaguard lint --format json .               as data

checked: rules of your own, opt-in rules that are enabled, and built-in rules about the versions
installed here. `# cudaguard: ignore[CG041]` on the line silences one rule,
`# cudaguard: ignore` all.

exit status: 0 nothing found, 1 found, 2 wrong usage, 3 a file could not be read
"""


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EXAMPLES
    parser.add_argument("path", nargs="+", metavar="PATH", help="a file, or a folder to search")
    parser.add_argument(
        "--config", metavar="FILE", help="a cudaguard.toml (default: $CUDAGUARD_CONFIG)"
    )
    add_format(parser)


def execute(args: Namespace) -> int:
    """Read, print what was found, and return the exit status."""
    from cudaguard.errors import ConfigError, RuleError
    from cudaguard.files.text import printable_data
    from cudaguard.system.source_file import files_below, read

    for path in args.path:
        if not os.path.exists(path):
            raise UsageError(f"{path}: there is no such file or folder")
    try:
        rules = _rules(args.config)
    except (ConfigError, RuleError) as error:
        raise UsageError(str(error)) from error
    files = list(dict.fromkeys(file for path in args.path for file in files_below(path)))
    found = []
    unreadable = 0
    for file in files:
        source = read(file)
        if source.problem:
            unreadable += 1
            note("lint", f"{file}: {source.problem}")
        found += [
            _finding(file, one)
            for one in misplaced(source.imports, rules)
            if not source.is_silenced(one.rule.id, one.then, one.first)
        ]
    if args.format == "json":
        document = {
            "tool": "lint", "files": len(files), "unreadable": unreadable, "findings": found,
        }  # fmt: skip
        show(json_text(document))
    else:
        for one in found:
            page = Page(sys.stdout)
            _write(printable_data(one), page)
            show(str(page))
        findings = f"{len(found)} finding{'s' * (len(found) != 1)}"
        note("lint", f"{findings} in {len(files)} file{'s' * (len(files) != 1)}")
    return BROKEN if unreadable else FOUND if found else OK


def _rules(config_file: str | None) -> list[Rule]:
    """Return the rules whose order is checked.

    Raises:
        ConfigError: The configuration file cannot be used.
        RuleError: A rule in it is malformed.
    """
    from cudaguard import config
    from cudaguard.api import active_rules
    from cudaguard.core.decide import applying, may_apply
    from cudaguard.core.rule_check import rules_from_tables
    from cudaguard.system.facts import Facts
    from cudaguard.tools.catalog import RULES

    if config_file is not None:
        os.environ[config.CONFIG_VARIABLE] = config_file
    said, _ = config.read_environment(os.environ)
    switches = dict(said.switches)
    if said.config:
        file = config.read_file(said.config)
        rules_from_tables(file.tables, file.source, known=[rule.id for rule in RULES])
        switches = {**file.switches, **switches}
    facts = Facts()
    active = active_rules()
    ids = {rule.id for rule in active}
    # Those that are off change programs; to tell of them changes nothing.
    off = [rule for rule in RULES if rule.id not in ids and switches.get(rule.id, True)]
    built_in = {rule.id: rule for rule in RULES}
    here = {rule.id for rule in applying([rule for rule in RULES if rule.needs], facts)}

    def counts(rule: Rule) -> bool:
        # What the user has written or switched on is meant for where the program runs.
        is_users = rule is not built_in.get(rule.id) or switches.get(rule.id, False)
        return may_apply(rule, facts) if is_users else rule.id in here

    return [rule for rule in (*active, *off) if rule.needs and counts(rule)]


class Misplaced(NamedTuple):
    """Two statements in the wrong order.

    Args:
        rule: The rule that forbids it.
        first: The statement that must come first, and comes second.
        then: The statement that comes too early.
        needed: The module that the rule wants first.
        early: The module that is imported too early.
    """

    rule: Rule
    first: Import
    then: Import
    needed: str
    early: str


def misplaced(statements: Sequence[Import], rules: Iterable[Rule]) -> list[Misplaced]:
    """Return what is in the wrong order, by the place of what comes too early."""
    found = [
        one
        for rule in rules
        for needed, early in _pairs(rule)
        for one in _of_pair(statements, rule, needed, early)
    ]
    return sorted(found, key=lambda one: (one.then.cell, one.then.line))


def _pairs(rule: Rule) -> Iterator[tuple[str, str]]:
    """Yield (first, then) for each order that a rule asks for."""
    needs = [name for name in rule.needs if name != CONTEXT]
    yield from zip(needs, needs[1:])
    for watched in rule.watch:
        yield from ((need, watched) for need in needs)


def _of_pair(
    statements: Sequence[Import], rule: Rule, needed: str, early: str
) -> Iterator[Misplaced]:
    bringing = [(place, one) for place, one in enumerate(statements) if _imports(one, needed)]
    reported: list[Import] = []
    for place, then in enumerate(statements):
        if not _imports(then, early) or any(not one.excludes(then) for one in reported):
            continue
        brought = [(at, one) for at, one in bringing if not one.excludes(then)]
        if brought and brought[0][0] > place:
            reported.append(then)
            yield Misplaced(rule, brought[0][1], then, needed, early)


def _imports(statement: Import, module: str) -> bool:
    """Return True if the statement imports that module, or one inside it."""
    inside = f"{module}."
    return any(
        name == module or name.startswith(inside) for name in (statement.module, statement.name)
    )


def _finding(path: str, misplaced: Misplaced) -> dict[str, Any]:
    """Return one finding as the JSON document has it."""
    rule, first, then = misplaced.rule, misplaced.first, misplaced.then
    place = f"line {first.line}" if first.cell == then.cell else f"cell {first.cell}"
    return {
        "path": path,
        "cell": then.cell,
        "line": then.line,
        "rule": rule.id,
        "what": f"{misplaced.early} is imported before {misplaced.needed}, which follows in "
        f"{place}",
        "why": rule.why,
        "needed": {"module": misplaced.needed, "cell": first.cell, "line": first.line},
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


def _write(found: Mapping[str, Any], page: Page) -> None:
    """Write one finding, as `_finding` returns it, for a reader."""
    cell = f"cell {found['cell']}:" if found["cell"] else ""
    place = f"{found['path']}:{cell}{found['line']}"
    page.add(f"{place}: {found['rule']} {found['what']}", style="bold")
    page.labeled("why", found["why"], _INDENT)
    for number, line in enumerate(found["write"]):
        page.add("", _INDENT, lead="       " if number else "write: ", whole=line)
