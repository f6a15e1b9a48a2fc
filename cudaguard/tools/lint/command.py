"""Findings import statements whose order a rule forbids, without running or importing anything.

Reads Python files and notebooks. What functions import is left out, as it runs later or never, and
so is what stands under `if TYPE_CHECKING`. --fix puts imports in order where nothing but imports
stands between them.
"""

from __future__ import annotations

import os

from cudaguard.tools.common import UsageError, add_format, add_verbose, note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cudaguard.model import Rule
    from cudaguard.system.source_file import Source

EXAMPLES = """\
examples:
  cudaguard lint src train.py                  everything below src, and one file
  cudaguard lint --config cudaguard.toml .     with rules of your own
  cudaguard lint --diff .                      what --fix would change
  cudaguard lint --fix .                       puts imports in order, so that sorters keep it
  cudaguard lint --format github .             annotations in a workflow
  cudaguard lint --format sarif .              for code scanning

checked: rules of your own, opt-in rules that are enabled, and built-in rules about the versions
installed here. `# cudaguard: ignore[CG041]` on the line silences one rule,
`# cudaguard: ignore` all.

exit status: 0 nothing found (or all of it fixed), 1 found, 2 wrong usage, 3 a file could not be
read or written
"""


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EXAMPLES
    parser.add_argument("path", nargs="+", metavar="PATH", help="a file, or a folder to search")
    parser.add_argument(
        "--config", metavar="FILE", help="a cudaguard.toml (default: $CUDAGUARD_CONFIG)"
    )
    add_verbose(parser, "also say which rules need no order, on stderr")
    doing = parser.add_mutually_exclusive_group()
    doing.add_argument("--fix", action="store_true", help="put imports in order, in the files")
    doing.add_argument("--diff", action="store_true", help="show what --fix would change, only")
    add_format(parser)


def execute(args: Namespace) -> int:
    """Read, print what was found, and return the exit status."""
    from cudaguard.errors import ConfigError, RuleError
    from cudaguard.system.source_file import files_below
    from cudaguard.tools.lint.report import Findings

    for path in args.path:
        if not os.path.exists(path):
            raise UsageError(f"{path}: there is no such file or folder")
    try:
        checked, others = _rules(args.config)
    except (ConfigError, RuleError) as error:
        raise UsageError(str(error)) from error
    if args.diff and args.format != "text":
        raise UsageError(f"--diff writes a diff, and takes no --format {args.format}")
    report = Findings(args, checked)
    for file in dict.fromkeys(file for path in args.path for file in files_below(path)):
        source = report.look(file)
        if args.verbose:
            _tell_more(source, others)
    report.show()
    return report.status()


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
