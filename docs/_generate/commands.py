"""The reference of commands: synopsis, options and exit statuses, from their parsers."""

from __future__ import annotations

import re
from argparse import SUPPRESS
from typing import TYPE_CHECKING

from _generate.markdown import code, plain, table_of
from cudaguard.tools import common
from cudaguard.tools.main import COMMANDS, MODULES, Parser, configure

if TYPE_CHECKING:
    from argparse import Action, ArgumentParser
    from collections.abc import Iterator


def overview() -> str:
    """Return the table of commands."""
    rows = (
        (f"[`cudaguard {name}`](commands/{name}.md)", plain(summary))
        for name, summary in COMMANDS.items()
    )
    return table_of(("command", "what it does"), rows)


def parser_of(name: str) -> ArgumentParser:
    """Return the parser of a command."""
    parser = Parser(prog=f"cudaguard {name}")
    configure(name, parser)
    return parser


def options(name: str) -> str:
    """Return synopsis, options and exit statuses of a command."""
    parser = parser_of(name)
    tasks = _tasks(parser)
    parts = [_part(one) for one in tasks.values()] if tasks else [_part(parser)]
    return "\n".join((*parts, _statuses(parser)))


def _tasks(parser: ArgumentParser) -> dict[str, ArgumentParser]:
    """Return the parsers of the tasks of a command."""
    found = (action.choices for action in parser._actions if isinstance(action.choices, dict))
    return next(found, {})


def _part(parser: ArgumentParser) -> str:
    rows = [
        (_name(action), plain(_help(action, parser)))
        for action in parser._actions
        if action.help != SUPPRESS and action.dest != "help"
    ]
    table = f"\n{table_of(('argument', 'meaning'), rows)}" if rows else ""
    return f"```text\n{synopsis(parser)}\n```\n{table}"


def synopsis(parser: ArgumentParser) -> str:
    """Return how a command is called, the same with every release of Python."""
    if parser.usage:
        lines = (parser.usage % {"prog": parser.prog}).splitlines()
        return "\n".join(line.strip() for line in lines)
    words = ["[OPTION ...]"] if any(action.option_strings for action in parser._actions) else []
    for action in parser._actions:
        if not action.option_strings:
            name = _value(action)
            words.append(f"{name} [{name} ...]" if action.nargs == "+" else name)
    return " ".join((parser.prog, *words))


def _value(action: Action) -> str:
    """Return what stands for the value of an argument."""
    if action.choices is not None and action.metavar is None:
        return "|".join(map(str, action.choices))
    metavar = action.metavar or action.dest.upper()
    return metavar if isinstance(metavar, str) else " ".join(metavar)


def _name(action: Action) -> str:
    if not action.option_strings:
        return code(_value(action))
    value = "" if action.nargs == 0 else f" {_value(action)}".replace("|", "\\|")
    return ", ".join(code(f"{option}{value}") for option in action.option_strings)


def _help(action: Action, parser: ArgumentParser) -> str:
    return (action.help or "") % {**vars(action), "prog": parser.prog}


def _statuses(parser: ArgumentParser) -> str:
    """Return the exit statuses, which the help says in its last paragraph."""
    said = " ".join((parser.epilog or "").split())
    match = re.search(r"(?:[Ee]xit status: |It ends as the program does)", said)
    if match is None:
        raise SystemExit(f"{parser.prog}: its help does not say how it ends")
    text = said[match.start() :].rstrip(".")
    return f"{plain(f'{text[:1].upper()}{text[1:]}.')}\n"


# The names are those of cudaguard.tools.common.
STATUSES = {
    "OK": "nothing was found, or what was asked for was done",
    "FOUND": "a fault was found; of `explain`: nothing in it is known",
    "USAGE": "wrong usage",
    "BROKEN": "a check itself failed, or a file could not be read or written",
    "TIMEOUT": "a time limit was reached (`run`, `trace`)",
    "CANNOT_SAY": "it fails, and no order of imports cures it (`bisect`)",
    "INTERRUPTED": "interrupted by Ctrl-C",
    "UNREAD": "the reader of standard output went away, as in `\\| head`",
}


def statuses() -> str:
    """Return the table of exit statuses."""
    rows = ((str(getattr(common, name)), meaning) for name, meaning in STATUSES.items())
    return table_of(("status", "meaning"), rows)


def pages() -> Iterator[tuple[str, str]]:
    """Yield the commands with their pages."""
    for name in MODULES:
        yield name, f"reference/commands/{name}.md"
