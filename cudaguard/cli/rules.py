"""List the rules, show one, or check a file with rules of your own.

Those in force are told for this directory's environment and variables, as a plain install() would
have them.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cudaguard.model import Rule

FORMATS = ("text", "json")


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = (
        "examples: cudaguard rules list; cudaguard rules show CG001; "
        "cudaguard rules check cudaguard.toml"
    )
    tasks = parser.add_subparsers(dest="task", metavar="TASK", required=True)
    listing = tasks.add_parser("list", help="all rules, a line each: on or off, grade, title")
    showing = tasks.add_parser("show", help="one rule with its evidence")
    showing.add_argument("id", help="as in CG001")
    checking = tasks.add_parser("check", help="tell whether a configuration file can be used")
    checking.add_argument("file", nargs="+", help="cudaguard.toml, or one with [tool.cudaguard]")
    for task in (listing, showing):
        task.add_argument("--format", choices=FORMATS, default="text", help="default: text")


def execute(args: Namespace) -> int:
    """Do it, and return the exit status."""
    if args.task == "check":
        return max(_check(file) for file in args.file)
    from cudaguard.rules.catalog import RULES
    from cudaguard.wiring import active_rules

    active = {rule.id: rule for rule in active_rules()}
    rules = {**{rule.id: rule for rule in RULES}, **active}
    if args.task == "show":
        rule = rules.get(args.id)
        if rule is None:
            print(
                f"cudaguard rules show: there is no rule {args.id!r}; `cudaguard rules list` has "
                "them all",
                file=sys.stderr,
            )
            return 2
        chosen = [rule]
    else:
        chosen = sorted(rules.values(), key=lambda rule: rule.id)
    if args.format == "json":
        import json

        data = [{**rule.to_dict(), "is_on": rule.id in active} for rule in chosen]
        print(json.dumps({"version": 1, "rules": data}, indent=2))
    elif args.task == "show":
        _show(chosen[0], is_on=args.id in active)
    else:
        for rule in chosen:
            state = "on " if rule.id in active else "off"
            print(f"{rule.id}  {state}  {rule.grade:<6}  {rule.title or rule.why}")
    return 0


def _show(rule: Rule, *, is_on: bool) -> None:
    print(f"{rule.id}: {rule.title}" if rule.title else rule.id)
    lines = (
        ("", rule.why),
        ("state", f"{'on' if is_on else 'off'}, grade {rule.grade}"),
        ("seen", rule.verified or "reported, not reproduced"),
        ("fixed in", rule.fixed_in or ""),
        ("watches", ", ".join(rule.watch)),
        ("of", ", ".join(rule.dist)),
        ("when", ", ".join(f"{key}: {value}" for key, value in rule.when.items())),
        ("needs", ", ".join(rule.needs)),
        ("does", ", ".join(rule.actions)),
        *(("see", link) for link in rule.links),
    )
    for name, text in lines:
        if text:
            print(f"  {name}: {text}" if name else f"  {text}")


def _check(file: str) -> int:
    from cudaguard.config import read_file
    from cudaguard.errors import ConfigError, RuleError
    from cudaguard.rules.catalog import RULES
    from cudaguard.rules.files import rules_from_tables

    try:
        found = read_file(file)
        known = [rule.id for rule in RULES]
        rules = rules_from_tables(found.tables, found.source, known=known)
    except (ConfigError, RuleError) as error:
        print(f"cudaguard rules check: {error}", file=sys.stderr)
        return 1
    names = ", ".join(rule.id for rule in rules) or "no rules"
    print(f"{file}: in order, {names}")
    return 0
