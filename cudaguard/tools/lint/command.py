"""Report import statements whose order a rule forbids, without running or importing anything.

Reads Python files and notebooks. What functions import is left out, as it runs later or never, and
so is what stands under `if TYPE_CHECKING`.
"""

from __future__ import annotations

import os
import sys

from cudaguard.files.text import printable_data
from cudaguard.tools.common import (
    BROKEN,
    FOUND,
    OK,
    USAGE,
    add_format,
    github,
    json_text,
    note,
    paint,
    show,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator
    from typing import Any

    from cudaguard.model import Rule
    from cudaguard.system.source_file import Source
    from cudaguard.tools.lint.policy import Misplaced

EXAMPLES = """\
examples:
  cudaguard lint src train.py                  everything below src, and one file
  cudaguard lint --config cudaguard.toml .     with rules of your own
  cudaguard lint --format github .             annotations in a workflow

checked: rules of your own, opt-in rules that are enabled, and built-in rules about the versions
installed here. `# cudaguard: ignore[CG011]` on the line silences one rule,
`# cudaguard: ignore` all.

exit status: 0 nothing found, 1 found, 2 wrong usage, 3 a file could not be read
"""


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    import argparse

    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument("path", nargs="+", metavar="PATH", help="a file, or a folder to search")
    parser.add_argument(
        "--config", metavar="FILE", help="a cudaguard.toml (default: $CUDAGUARD_CONFIG)"
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="also say which rules need no order, on stderr"
    )
    add_format(parser)


def execute(args: Namespace) -> int:
    """Read, print what was found, and return the exit status."""
    from cudaguard.errors import ConfigError, RuleError
    from cudaguard.system.source_file import files_below, read

    for path in args.path:
        if not os.path.exists(path):
            note("lint", f"{path}: there is no such file or folder")
            return USAGE
    try:
        checked, others = _rules(args.config)
    except (ConfigError, RuleError) as error:
        note("lint", str(error))
        return USAGE
    found: list[dict[str, Any]] = []
    files = list(dict.fromkeys(file for path in args.path for file in files_below(path)))
    problems = 0
    for file in files:
        source = read(file)
        if source.problem:
            problems += 1
            note("lint", f"{file}: {source.problem}")
        found += _findings(source, checked)
        if args.verbose:
            _tell_more(source, others)
    _print(found, files, problems, args.format)
    return BROKEN if problems else FOUND if found else OK


def _print(found: list[dict[str, Any]], files: list[str], problems: int, format: str) -> None:
    from cudaguard.tools.lint import messages as report

    if format == "json":
        document = {
            "tool": "lint", "files": len(files), "unreadable": problems, "findings": found
        }  # fmt: skip
        show(json_text(document))
        return
    for one in found:
        if format == "github":
            where = {"file": one["path"]}
            if not one["cell"]:
                where.update(line=one["line"], col=one["column"])
            text = report.text(one).partition(": ")[2]
            show(github("error", text, title=f"cudaguard {one['rule']}", **where))
        else:
            first, end, rest = report.text(printable_data(one)).partition("\n")
            show(paint(first, "bold", sys.stdout) + end + rest)
    note("lint", report.summary(found, len(files)))


def _rules(config_file: str | None) -> tuple[list[Rule], list[Rule]]:
    """Return (rules whose order is checked, other rules in force).

    Raises:
        ConfigError: The configuration file cannot be used.
        RuleError: A rule in it is malformed.
    """
    from cudaguard import config
    from cudaguard.api import active_rules
    from cudaguard.core.decide import applying, may_apply
    from cudaguard.core.rule_files import rules_from_tables
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
    ours = {rule.id: rule for rule in RULES}
    here = {rule.id for rule in applying([rule for rule in RULES if rule.needs], facts)}
    chosen: list[Rule] = []
    for rule in active:
        # What the user has written or switched on is meant for where the program runs.
        is_users = rule is not ours.get(rule.id) or switches.get(rule.id, False)
        if rule.needs and (may_apply(rule, facts) if is_users else rule.id in here):
            chosen.append(rule)
    # Those that are off change programs; to tell of them changes nothing.
    chosen += [
        rule
        for rule in RULES
        if rule.id not in ids and switches.get(rule.id, True)
        if rule.id in here
    ]
    return chosen, [rule for rule in active if rule not in chosen]


def _findings(source: Source, rules: list[Rule]) -> Iterator[dict[str, Any]]:
    from cudaguard.tools.lint.messages import finding
    from cudaguard.tools.lint.policy import misplaced

    for one in misplaced(source.imports, rules):
        if not source.is_silenced(one.rule.id, one.then, one.first):
            pinned, by_name = _sorting(source.path, one)
            yield finding(source.path, one, is_pinned=pinned, by_name=by_name)


def _sorting(path: str, one: Misplaced) -> tuple[bool, bool]:
    """Return whether a sorter would undo the right order, and whether sorting by name would not."""
    from cudaguard.system.origins import LOCAL, origin_of
    from cudaguard.tools.lint.policy import is_kept_by_sorters

    folders = [os.path.dirname(path) or ".", *sys.path]
    first, then = (origin_of(name, folders) == LOCAL for name in (one.needed, one.early))
    if first is not then:  # in sections of their own, the user's own modules last
        return first, False
    kept = is_kept_by_sorters(one.first, one.then)
    return not kept, not kept and is_kept_by_sorters(one.first, one.then, by_name=True)


def _tell_more(source: Source, others: list[Rule]) -> None:
    from cudaguard.tools.lint import messages as report
    from cudaguard.tools.lint.policy import imports

    for rule in others:
        for watched in rule.watch:
            for one in source.imports:
                if imports(one, watched):
                    if rule.needs:
                        note("lint", report.unchecked(rule))
                    else:
                        note("lint", report.needs_no_order(source.path, one.line, watched, rule))
                    break
