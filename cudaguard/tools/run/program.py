"""The command line behind ``cudaguard run``: read as Python reads it."""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

UNGUARDED = frozenset("IES")  # options of Python under which the guard cannot get in
# Our own options, which come first.
WITH_VALUE = ("--mode", "--report", "--timeout")
FLAGS = ("--why", "--exec", "--verbose", "-h", "--help")


class Program(NamedTuple):
    """What is run, as it stands on the command line behind the options of Python.

    Args:
        words: The script, ``-m MODULE`` or ``-c CODE``, or another command; and its arguments.
        script: The path of a script or command; empty for everything else.
    """

    words: tuple[str, ...]
    script: str


def letters(word: str) -> tuple[str, str]:
    """Return the plain flags of a word such as ``-Bum``, and what begins at -m, -c, -W or -X."""
    for place, letter in enumerate(word):
        if place and letter in "mcWX":
            return word[1:place], word[place:]
    return word[1:], ""


def parsed(command: Sequence[str]) -> tuple[Program, str]:
    """Return the program of a command line for Python, and what is wrong with it if anything is."""
    words, nothing = list(command), Program((), "")
    while words and words[0].startswith("-") and words[0] not in ("-", "--"):
        word = words.pop(0)
        if word.startswith("--"):
            return nothing, f"unknown option {word}; {_expected(word)}"
        flags, rest = letters(word)
        if not UNGUARDED.isdisjoint(flags):
            return nothing, (
                f"{word}: under -I, -E and -S Python reads neither PYTHONPATH nor sitecustomize, "
                "through which the guard gets in"
            )
        if rest[:1] in ("m", "c"):
            if len(rest) == 1 and not words:
                return nothing, f"{word} is followed by nothing"
            return Program((*filter(None, (f"-{rest[0]}", rest[1:])), *words), ""), ""
        if len(rest) == 1:  # -W and -X with their argument in the next word
            del words[:1]
    if words[:1] == ["--"]:
        del words[0]
    if not words:
        return nothing, (
            "expected a script or command, -m MODULE, -c CODE, or - for a program on standard input"
        )
    return Program(tuple(words), words[0] if words[0] != "-" else ""), ""


def _expected(word: str) -> str:
    from difflib import get_close_matches

    options = (*WITH_VALUE, *FLAGS[:3])
    near = get_close_matches(word.partition("=")[0], options, 1)
    if near:
        return f"did you mean {near[0]}?"
    return f"expected {', '.join(options)}, an option of Python, or the program"
