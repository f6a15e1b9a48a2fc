"""The parser of our commands, and what is said of a command line that it does not take."""

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
