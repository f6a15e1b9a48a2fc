"""List the rules, or check a file with rules of your own; `cudaguard explain ID` shows one.

`on` and `off` are as a plain cudaguard.install() would have them, with the variables set here.
"""

from __future__ import annotations

import sys
from collections import Counter

from cudaguard.core.decide import plan
from cudaguard.core.findings import counted
from cudaguard.core.registry import Registry, built_in, entry_of
from cudaguard.core.rule_check import rules_from_tables
from cudaguard.core.settings import checked_file
from cudaguard.core.table import table
from cudaguard.errors import ConfigError, RuleError
from cudaguard.files.layout import Page
from cudaguard.files.text import printable
from cudaguard.model import TYPE_CHECKING
from cudaguard.system.facts import Facts
from cudaguard.tools.common import FOUND, OK, add_format, json_text, note, show

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping, Sequence

    from cudaguard.core.rule import Rule


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    tasks = parser.add_subparsers(dest="task", metavar="TASK", required=True)
    listing = tasks.add_parser("list", help="all rules, a line each: on or off, grade, title")
    checking = tasks.add_parser("check", help="tell whether a configuration file can be used")
    checking.add_argument("file", nargs="+", help="cudaguard.toml, or one with [tool.cudaguard]")
    add_format(listing, "show why, what each watches, and the packages it is about")
    add_format(checking, "show the ids of the rules")


def execute(args: Namespace) -> int:
    """List or check, and return the exit status."""
    if args.task == "check":
        return _check_all(args)
    from cudaguard.api import active_rules
    from cudaguard.tools.doctor.checks import all_rules

    active = {rule.id for rule in active_rules()}
    chosen = [rule for _, rule in sorted(all_rules().items())]
    if args.format == "json":
        data = [{**rule.to_dict(), "is_on": rule.id in active} for rule in chosen]
        show(json_text({"tool": "rules list", "rules": data}))
    else:
        page = Page(sys.stdout)
        for rule in chosen:
            state = "on" if rule.id in active else "off"
            lead = f"{printable(rule.id)}  {state:<3}  {rule.grade:<9}  "
            page.add(printable(rule.title or rule.why), lead=lead, hanging=len(lead))
            if args.verbose:
                page.labeled("because", printable(rule.why), len(lead))
                of = f"watches {', '.join(rule.watch)}; applies to {', '.join(rule.dist) or 'all'}"
                page.labeled("more", printable(of), len(lead))
        show(str(page))
    return OK


def _check_all(args: Namespace) -> int:
    results = []
    for file in args.file:
        rules: Sequence[Rule] = ()
        try:
            settings = checked_file(file)
            rules = rules_from_tables(settings.tables, file, known=table.rule_ids)
            found = _disagreements(rules, settings.switches)
            problems = [f"{file}: {problem}" for problem in found]
        except (ConfigError, RuleError) as error:
            problems = [str(error)]
        results.append({"path": file, "rules": [rule.id for rule in rules], "problems": problems})
        for problem in problems:
            note("rules check", problem)
        if not problems and args.format == "text":
            ids = ": " + ", ".join(rule.id for rule in rules) if args.verbose and rules else ""
            show(printable(f"{file}: OK ({counted(len(rules), 'rules')}{ids})"))
    if args.format == "json":
        show(json_text({"tool": "rules check", "files": results}))
    return FOUND if any(result["problems"] for result in results) else OK


def _disagreements(rules: Sequence[Rule], switches: Mapping[str, bool]) -> list[str]:
    """Return what cannot be followed: ids that stand there twice, orders that contradict."""
    problems = [
        f"rule {id!r} stands there {count} times, and only the last one counts: give each an id "
        "of its own"
        for id, count in Counter(rule.id for rule in rules).items()
        if count > 1
    ]
    registry = Registry([*built_in(), *((entry_of(rule), "file") for rule in rules)], switches)
    facts = Facts()
    for name in sorted({name for rule in rules for name in rule.watch}):
        for problem in plan(name, registry.rules_of, registry.is_users, facts).problems:
            clash = f"rules contradict one another, and none of them is followed: {problem}"
            if clash not in problems:
                problems.append(clash)
    return problems
