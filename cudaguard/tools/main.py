"""The command line. A sub-command is a module with ``configure(parser)`` and ``execute(args)``.

The exit statuses are in `cudaguard.tools.common`; `run` ends as the program does.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter

from cudaguard.core.near import closest
from cudaguard.tools.common import USAGE, UsageError, json_text, note, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Action, Namespace
    from collections.abc import Iterable, Sequence
    from typing import Any, NoReturn

# --- The parser of our commands, and what is said of a command line that it does not take ---------

PROGRAM = "cudaguard"


class HelpFormatter(RawDescriptionHelpFormatter):
    """Help as it is written, and on a terminal as wide as that, 40 to 120 columns."""

    def __init__(self, prog: str, **options: Any) -> None:
        from cudaguard.tools.layout import width_of

        self._terminal = width_of(sys.stdout)
        if self._terminal:
            options["width"] = self._terminal - 2  # as argparse has it
            options.setdefault("max_help_position", min(24, self._terminal // 4))
        super().__init__(prog, **options)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if not self._terminal:
            return super()._fill_text(text, width, indent)
        from cudaguard.tools.layout import Page, add_written

        page = Page(sys.stdout)
        add_written(page, text)
        return str(page)

    def _format_usage(self, usage: str | None, *details: Any) -> str:
        text = super()._format_usage(usage, *details)
        if usage is None or not self._terminal:  # argparse wraps its own
            return text
        from cudaguard.tools.layout import Page

        page = Page(sys.stdout)
        for line in text.rstrip().split("\n"):
            indent = len(line) - len(line.lstrip())
            page.add(line.strip(), indent, hanging=4 if indent else 11)
        return f"{page}\n\n"


class Parser(ArgumentParser):
    """A parser that raises `UsageError`, with what was probably meant."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(
            *args, **{"allow_abbrev": False, "formatter_class": HelpFormatter, **options}
        )

    def error(self, message: str) -> NoReturn:
        """Raise what argparse has found.

        Raises:
            UsageError: Always.
        """
        raise UsageError(message, command=f"{self.prog} --help")

    def refuse_unknown(self, words: Sequence[str], args: Namespace) -> NoReturn:
        """Raise an error about words that no argument takes.

        Args:
            words: All of them.
            args: What was understood.

        Raises:
            UsageError: Always.
        """
        what = f"unrecognized arguments: {' '.join(words)}"
        wrong = next((word for word in words if word.startswith("-")), "")
        name = wrong.partition("=")[0]
        right = closest(name, self._options_of(args)) if name.startswith("--") else ""
        raise UsageError(what, wrong=name, right=right, command="" if right else self._help())

    def _options_of(self, args: Namespace) -> Iterable[str]:
        """Yield the options of this command, and of the task that was chosen."""
        yield from self._option_string_actions
        for action in self._actions:
            task = getattr(args, action.dest, None)
            if isinstance(action.choices, dict) and task in action.choices:
                yield from action.choices[task]._option_string_actions

    def _check_value(self, action: Action, value: object) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        name = "/".join(action.option_strings) or str(action.metavar or action.dest)
        what = f"{name}: got {value!r}, expected one of {', '.join(known)}"
        wrong = value if isinstance(value, str) else ""
        right = closest(wrong.lower(), known)
        raise UsageError(what, wrong=wrong, right=right, command="" if right else self._help())

    def _help(self) -> str:
        return f"{self.prog} --help"


def refuse(words: Sequence[str], own: Sequence[str], tool: str, error: UsageError) -> int:
    """Say what is wrong on standard error, as a JSON document too if one was asked for.

    Args:
        words: The command line.
        own: Its part that is ours, without a program and its arguments.
        tool: The command; empty if there is none of that name.
        error: What is wrong.

    Returns:
        The exit status.
    """
    what, command = str(error), error.command or _corrected(words, tool, error)
    note(tool, "; ".join(filter(None, (what, error.remedy))), command)
    if asks_for_json(own):
        said = {"what": what, "remedy": error.remedy, "command": command}
        show(json_text({"tool": tool or PROGRAM, "error": said, "status": error.status}))
    return error.status


def asks_for_json(words: Sequence[str]) -> bool:
    """Return True if a command line asks for JSON, the last ``--format`` being the one that counts.

    Known from the words alone, as an error may be in any of them.
    """
    formats = [
        word.partition("=")[2] if "=" in word else next_word
        for word, next_word in zip(words, [*words[1:], ""])
        if word == "--format" or word.startswith("--format=")
    ]
    return formats[-1:] == ["json"]


def _corrected(words: Sequence[str], tool: str, error: UsageError) -> str:
    """Return the command line with what was probably meant, or that of the help."""
    import shlex

    if error.status != USAGE:
        return ""
    if not error.right:
        return " ".join(filter(None, (PROGRAM, tool, "--help")))
    new = list(words)
    for place, word in enumerate(words):
        name, is_equal, value = word.partition("=")
        if word == error.wrong:
            new[place] = error.right
        elif is_equal and name == error.wrong:
            new[place] = f"{error.right}={value}"
        elif is_equal and value == error.wrong and name.startswith("--"):
            new[place] = f"{name}={error.right}"
        else:
            continue
        break
    return f"{PROGRAM} {shlex.join(new)}"


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
