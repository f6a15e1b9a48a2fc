"""The command line. A sub-command is a module with ``configure(parser)`` and ``execute(args)``.

The exit statuses are in `cudaguard.tools.common`; `run` ends as the program does.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MODULES = {
    "run": "run.command",
    "doctor": "doctor.command",
    "trace": "trace.command",
    "bisect": "bisect.command",
    "check-extension": "check_extension.command",
    "lint": "lint.command",
    "rules": "rules",
    "explain": "explain",
    "demo": "demo",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one sub-command and return its exit status."""
    from cudaguard.tools.command_line import refuse
    from cudaguard.tools.common import (
        BROKEN,
        INTERRUPTED,
        UNREAD,
        UsageError,
        give_up,
        note,
        prepare_streams,
    )

    words = sys.argv[1:] if arguments is None else list(arguments)
    own = list(words)  # without a program and its arguments, once that is known
    tool = words[0] if words and words[0] in MODULES else ""
    prepare_streams()
    try:
        return _run(words, own)
    except UsageError as error:
        return refuse(words, own, tool, error)
    except KeyboardInterrupt:
        note(tool, "interrupted")
        return INTERRUPTED
    except OSError as error:  # those of single files are told where they occur
        if isinstance(error, BrokenPipeError):
            give_up(sys.stdout)
            return UNREAD
        try:
            return refuse(words, own, tool, UsageError(str(error), status=BROKEN))
        except OSError:  # it is standard output that cannot be written
            give_up(sys.stdout)
            return BROKEN


def _run(words: list[str], own: list[str]) -> int:
    import importlib

    import cudaguard
    from cudaguard.core.near import closest
    from cudaguard.core.table import table
    from cudaguard.features import _index
    from cudaguard.tools import messages
    from cudaguard.tools.command_line import Parser
    from cudaguard.tools.common import USAGE, UsageError, say
    from cudaguard.tools.output import execute

    table.use(_index)
    parser = Parser(
        prog="cudaguard",
        description=messages.SUMMARY,
        epilog=messages.EXAMPLES,
    )
    parser.add_argument("--version", action="version", version=f"cudaguard {cudaguard.__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    program: list[str] = []
    for name, summary in messages.COMMANDS.items():
        sub = commands.add_parser(name, help=summary)
        if words[:1] != [name]:  # `run` stands before programs: the others are not its business
            continue
        module = importlib.import_module(f".{MODULES[name]}", __package__)
        sub.description = (module.__doc__ or "").replace("``", "`")
        module.configure(sub)
        sub.set_defaults(execute=module.execute)
        if hasattr(module, "split"):  # it is followed by a program with options of its own
            options, program = module.split(words[1:])
            own[:] = [name, *options]
    if own and not own[0].startswith("-") and own[0] not in MODULES:
        right = closest(own[0].lower(), MODULES)
        raise UsageError(messages.no_command(own[0], right), wrong=own[0], right=right)
    try:
        args, unknown = parser.parse_known_args(own)
    except SystemExit:  # after a help, say
        sys.stdout.flush()
        raise
    if unknown:
        commands.choices.get(args.command, parser).refuse_unknown(unknown, args)
    args.program, args.given = program, own
    if args.command is None:
        from cudaguard.tools.layout import Page, add_written

        page = Page(sys.stderr)
        add_written(page, messages.overview())
        say(f"{page}\n", sys.stderr)
        return USAGE
    status = execute(args)
    sys.stdout.flush()
    return status
