"""The command line. A sub-command is a module with ``configure(parser)`` and ``execute``.

The exit statuses are in `cudaguard.tools.common`; `run` ends as the program does.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter

import cudaguard
from cudaguard.core.table import table
from cudaguard.errors import ConfigError, RuleError
from cudaguard.features import _index
from cudaguard.files import packaged_text
from cudaguard.files.text import close_match
from cudaguard.model import TYPE_CHECKING
from cudaguard.tools import common

if TYPE_CHECKING:
    from argparse import Action, Namespace
    from collections.abc import Sequence
    from typing import Any, NoReturn

PROGRAM = "cudaguard"
SUMMARY = "Run-time import-order guard for Python programs that mix CUDA libraries."
COMMANDS = {
    "run": "run a program under the guard from its first line",
    "attach": "show what a running Python process waits for",
    "doctor": "report what would break here, before anything is run",
    "trace": "show when a program maps which native library, and who initializes CUDA",
    "bisect": "find the imports, and their order, with which a program fails",
    "check-extension": "report whether compiled extensions would load, and have code for a GPU",
    "lint": "report import statements whose order a rule forbids",
    "rules": "list the rules, or check a file with your own",
    "explain": "explain an error message or an id, and what to do",
    "demo": "run a program that fails, without the guard and with it",
}
WITH_PROGRAM = ("run", "trace", "bisect")  # followed by a program with options of its own
MODULES = {
    name: f"{name}.command" if name in ("run", "doctor", "bisect") else name.replace("-", "_")
    for name in COMMANDS
}
_ID = re.compile(r"CG\d{3}", re.IGNORECASE)


class Parser(ArgumentParser):
    """A parser that raises `UsageError`, with what was probably meant."""

    def __init__(self, *args: Any, **options: Any) -> None:
        own = {"allow_abbrev": False, "formatter_class": RawDescriptionHelpFormatter}
        super().__init__(*args, **{**own, **options})

    def error(self, message: str, wrong: str = "", right: str = "") -> NoReturn:
        """Raise a `UsageError`; a word was wrong, and another probably meant."""
        command = "" if right else f"{self.prog} --help"
        raise common.UsageError(message, wrong=wrong, right=right, command=command)

    def refuse_unknown(self, words: Sequence[str], args: Namespace) -> NoReturn:
        """Raise a `UsageError` about words that no argument takes."""
        known = [*self._option_string_actions]
        for action in self._actions:  # those of the task that was chosen
            task = getattr(args, action.dest, None)
            if isinstance(action.choices, dict) and task in action.choices:
                known += action.choices[task]._option_string_actions
        wrong = next((word.partition("=")[0] for word in words if word.startswith("--")), "")
        right = close_match(wrong, known) if wrong else ""
        self.error(f"unrecognized arguments: {' '.join(words)}", wrong, right)

    def _check_value(self, action: Action, value: object) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        name = "/".join(action.option_strings) or str(action.metavar or action.dest)
        what = f"{name}: got {value!r}, expected one of {', '.join(known)}"
        self.error(what, str(value), close_match(str(value).lower(), known))


def configure(name: str, parser: ArgumentParser) -> None:
    """Declare what a command is for, its arguments, and what executes it."""
    from importlib import import_module

    module = import_module(f".{MODULES[name]}", __package__)
    parser.description, parser.epilog = (module.__doc__ or "").replace("``", "`"), examples_of(name)
    module.configure(parser)
    parser.set_defaults(execute=module.execute)


def examples_of(command: str) -> str:
    """Return what the help of a command ends with."""
    text = packaged_text(os.path.join(os.path.dirname(__file__), "examples.txt"))
    return text.partition(f"\n[{command}]\n")[2].partition("\n\n[")[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one sub-command and return its exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words[:1] in (["run"], ["trace"]):  # Ctrl-C ends us as the program, before that has begun
        import signal

        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    if words and _ID.fullmatch(words[0]):
        words.insert(0, "explain")
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    own = list(words)  # without a program and its arguments, once that is known
    tool = words[0] if words and words[0] in MODULES else ""
    common.prepare_streams()
    try:
        return _run(words, own)
    except common.UsageError as error:
        return _refuse(words, own, tool, error)
    except (ConfigError, RuleError) as error:
        return _refuse(words, own, tool, common.UsageError(str(error)))
    except KeyboardInterrupt:
        common.note(tool, "interrupted")
        return common.INTERRUPTED
    except BrokenPipeError:
        common.give_up(sys.stdout)
        return common.UNREAD
    except OSError as error:  # those of single files are told where they occur
        try:
            return _refuse(words, own, tool, common.UsageError(str(error), status=common.BROKEN))
        except OSError:  # it is standard output that cannot be written
            common.give_up(sys.stdout)
            return common.BROKEN


def _run(words: list[str], own: list[str]) -> int:
    table.use(_index)
    parser = Parser(prog=PROGRAM, description=SUMMARY, epilog=examples_of(PROGRAM))
    parser.add_argument("--version", action="version", version=f"cudaguard {cudaguard.__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    program: list[str] = []
    line = os.environ.get("COMP_LINE", "").split()  # of a shell that asks what may come next
    for name, summary in COMMANDS.items():
        sub = commands.add_parser(name, help=summary)
        # `run` stands before programs: the others are not its business.
        if name not in (*words[:1], *line[1:2]):
            continue
        configure(name, sub)
        if name in WITH_PROGRAM:
            from cudaguard.tools.run.launch import split

            options = sub._option_string_actions.items()
            switches = [option for option, does in options if does.nargs is None]
            ours, program = split(words[1:], switches)
            own[:] = [name, *ours]
    if "_ARGCOMPLETE" in os.environ:
        __import__("argcomplete").autocomplete(parser)
    if own and not own[0].startswith("-") and own[0] not in MODULES:
        right = close_match(own[0].lower(), MODULES)
        expected = "" if right else f"; expected one of {', '.join(COMMANDS)}"
        what = f"there is no command {own[0]!r}{expected}"
        command = f"cudaguard run {shlex.join(words)}" if os.path.isfile(own[0]) else ""
        raise common.UsageError(what, wrong=own[0], right=right, command=command)
    try:
        args, unknown = parser.parse_known_args(own)
    except SystemExit:  # after a help, say
        sys.stdout.flush()
        raise
    if unknown:
        commands.choices.get(args.command, parser).refuse_unknown(unknown, args)
    args.program, args.given = program, own
    if args.command is None:
        common.say(parser.format_help(), sys.stderr)
        return common.USAGE
    status = common.execute(args)
    sys.stdout.flush()
    if sys.flags.inspect:  # the prompt is the program's; Python would show one of ours as well
        os._exit(status)
    return status


def _refuse(words: Sequence[str], own: Sequence[str], tool: str, error: common.UsageError) -> int:
    """Say what is wrong on standard error, as a JSON document too if one was asked for.

    `own` is the part of the command line without a program and its arguments.
    """
    what, command = str(error), error.command
    id = next((w for w in words if _ID.fullmatch(w) and (w in what or tool == "rules")), "")
    if id:  # one that this command does not know
        command = f"{PROGRAM} explain {id.upper()}"
    # The line with what was probably meant, or the help.
    if error.status == common.USAGE and not command:
        command = " ".join(filter(None, (PROGRAM, tool, "--help")))
        # Of --option=value, each part may be wrong.
        parts = [word.split("=", 1) for word in words]
        place = next((n for n, p in enumerate(parts) if error.right and error.wrong in p), None)
        if place is not None:
            right = (error.right if part == error.wrong else part for part in parts[place])
            new = [*words[:place], "=".join(right), *words[place + 1 :]]
            command = f"{PROGRAM} {shlex.join(new)}"
    common.note(tool, "; ".join(filter(None, (what, error.remedy))), command)
    if asks_for_json(own):
        said = {"what": what, "remedy": error.remedy, "command": command}
        document = {"tool": tool or PROGRAM, "error": said, "status": error.status}
        common.show(common.json_text(document))
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
