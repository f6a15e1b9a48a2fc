"""The command line. A sub-command is a module with ``configure(parser)`` and ``execute(args)``.

The exit statuses are in `cudaguard.tools.common`; `run` ends as the program does.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLES = """\
examples:
  cudaguard doctor                    what would break in this environment?
  cudaguard run train.py --epochs 3   the program, guarded; if it dies, why
  cudaguard bisect train.py           which imports make it fail?
  cudaguard explain CG001             what does that id, or a message, mean?

`cudaguard COMMAND --help` has more. Exit status: 0 nothing was found, 1 a fault was found, 2 wrong
usage, 3 a check could not be made; `cudaguard run` ends as the program does.
"""
COMMANDS = {
    "run": "run a program under the guard from its first line",
    "doctor": "tell what would break here, before anything is run",
    "trace": "show when a program maps which native library, and who initializes CUDA",
    "bisect": "find the imports, and their order, with which a program fails",
    "check-extension": "tell whether compiled extensions would load, and have code for a GPU",
    "lint": "report import statements whose order a rule forbids",
    "rules": "list the rules, show one, test one, or check a file with your own",
    "explain": "say what an error message or an id means, and what to do",
    "demo": "show a real fault and its cure side by side",
}

MODULES = {
    "run": "run.command",
    "doctor": "doctor.command",
    "trace": "trace.command",
    "bisect": "bisect.command",
    "check-extension": "check_extension.command",
    "lint": "lint.command",
    "rules": "rules.command",
    "explain": "explain",
    "demo": "demo",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one sub-command and return its exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        return _run(given)
    except KeyboardInterrupt:
        from cudaguard.tools.common import INTERRUPTED, note

        note((given or ["help"])[0], "interrupted")
        return INTERRUPTED
    except OSError as error:  # those of single files are told where they occur
        from cudaguard.tools.common import BROKEN, UNREAD, give_up, note

        give_up(sys.stdout)
        if isinstance(error, BrokenPipeError):
            return UNREAD
        note((given or ["help"])[0], str(error))
        return BROKEN


def _run(given: list[str]) -> int:
    import argparse
    import importlib

    import cudaguard
    from cudaguard.core.table import table
    from cudaguard.features import _index
    from cudaguard.tools.common import prepare_streams

    table.use(_index)
    prepare_streams()
    parser = argparse.ArgumentParser(
        prog="cudaguard",
        description="Run-time import-order guard for Python programs that mix CUDA libraries.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"cudaguard {cudaguard.__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    program: list[str] = []
    words = list(given)
    for name, summary in COMMANDS.items():
        sub = commands.add_parser(name, help=summary)
        if given[:1] != [name]:  # `run` stands before programs: the others are not its business
            continue
        module = importlib.import_module(f".{MODULES[name]}", __package__)
        sub.description = module.__doc__
        module.configure(sub)
        sub.set_defaults(execute=module.execute)
        if hasattr(module, "split"):  # it is followed by a program with options of its own
            own, program = module.split(given[1:])
            given = [name, *own]
    try:
        args, unknown = parser.parse_known_args(given)
        if unknown:  # told with the usage of the command, and not with ours
            told = f"unrecognized arguments: {' '.join(unknown)}"
            commands.choices.get(args.command, parser).error(told)
    except SystemExit:  # after a help, say
        sys.stdout.flush()
        raise
    args.program, args.words = program, words
    if args.command is None:
        parser.print_help(sys.stderr)
        return 2
    status: int = args.execute(args)
    sys.stdout.flush()
    return status
