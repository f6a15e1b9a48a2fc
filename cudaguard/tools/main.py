"""The command line. A sub-command is a module with ``configure(parser)`` and ``execute(args)``.

The exit statuses are in `cudaguard.tools.common`; `run` ends as the program does.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

SUMMARY = "Run-time import-order guard for Python programs that mix CUDA libraries."
EXAMPLES = """\
examples:
  cudaguard doctor                    what would break in this environment?
  cudaguard run train.py --epochs 3   the program, guarded; if it dies, why
  cudaguard bisect train.py           which imports make it fail?
  cudaguard explain CG001             what does that id, or a message, mean?

`cudaguard COMMAND --help` has more. Exit status: 0 nothing was found, 1 a fault was found, 2 wrong
usage, 3 a check could not be made; `cudaguard run` ends as the program does.
"""
MODULES = {
    "run": "run.command",
    "doctor": "doctor.command",
    "trace": "trace.command",
    "bisect": "bisect.command",
    "check-extension": "check_extension",
    "lint": "lint",
    "rules": "rules",
    "explain": "explain",
    "demo": "demo",
}
COMMANDS = {
    "run": "run a program under the guard from its first line",
    "doctor": "report what would break here, before anything is run",
    "trace": "show when a program maps which native library, and who initializes CUDA",
    "bisect": "find the imports, and their order, with which a program fails",
    "check-extension": "report whether compiled extensions would load, and have code for a GPU",
    "lint": "report import statements whose order a rule forbids",
    "rules": "list the rules, show one, or check a file with your own",
    "explain": "explain an error message or an id, and what to do",
    "demo": "show a real fault and its cure side by side",
}
# What one wants, and the call for it; in the order in which a user comes to need them.
_WANTS = (
    ("see what would break here, before you run anything", "cudaguard doctor"),
    ("run a program with repairs, and learn why it dies", "cudaguard run train.py"),
    ("understand an error message or an id", "cudaguard explain 'undefined symbol: ...'"),
    ("find the imports that make a program fail", "cudaguard bisect train.py"),
    ("see which import maps which library", "cudaguard trace train.py"),
    ("check a compiled extension without loading it", "cudaguard check-extension my_ext.so"),
    ("check the order of import statements in CI", "cudaguard lint ."),
    ("see the rules, or check your own", "cudaguard rules list"),
    ("see a fault and its cure", "cudaguard demo"),
)


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
    if words[:1] in (["run"], ["trace"]):
        _die_by_interrupts()
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


def _die_by_interrupts() -> None:
    """Have Ctrl-C end this process as it would end the program, before that has begun."""
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _run(words: list[str], own: list[str]) -> int:
    import importlib

    import cudaguard
    from cudaguard.core.near import closest
    from cudaguard.core.table import table
    from cudaguard.features import _index
    from cudaguard.tools.command_line import Parser
    from cudaguard.tools.common import USAGE, UsageError, execute, say

    table.use(_index)
    parser = Parser(
        prog="cudaguard",
        description=SUMMARY,
        epilog=EXAMPLES,
    )
    parser.add_argument("--version", action="version", version=f"cudaguard {cudaguard.__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    program: list[str] = []
    for name, summary in COMMANDS.items():
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
        expected = "" if right else f"; expected one of {', '.join(COMMANDS)}"
        raise UsageError(f"there is no command {own[0]!r}{expected}", wrong=own[0], right=right)
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
        add_written(page, overview())
        say(f"{page}\n", sys.stderr)
        return USAGE
    status = execute(args)
    sys.stdout.flush()
    return status


def overview() -> str:
    """Return the commands by what one wants, for a call without any."""
    width = max(len(want) for want, _ in _WANTS)
    lines = (f"  {want:<{width}}  {call}" for want, call in _WANTS)
    return "\n".join(("What do you want to do?", "", *lines, "", "Options: cudaguard --help"))
