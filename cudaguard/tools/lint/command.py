"""Report import statements whose order a rule forbids, without running or importing anything.

Reads Python files and notebooks. What functions import is left out, as it runs later or never, and
so is what stands under `if TYPE_CHECKING`.
"""

from __future__ import annotations

import os
import sys

from cudaguard.tools.common import BROKEN, FOUND, OK, UsageError, add_format, json_text, note, show
from cudaguard.tools.layout import Page
from cudaguard.tools.lint import messages
from cudaguard.tools.lint.policy import misplaced

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cudaguard.model import Rule

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
            messages.finding(file, one)
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
            messages.write(printable_data(one), page)
            show(str(page))
        note("lint", messages.summary(len(found), len(files)))
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
