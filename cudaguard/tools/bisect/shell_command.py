"""Refuses a ``--cmd`` that cannot be run at all: the shell that would run it is asked."""

from __future__ import annotations

import os
import re
import shlex
import subprocess

from cudaguard.tools.common import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudaguard.tools.bisect.trials import Try

SHELL = "/bin/sh"
_SYNTAX = frozenset("|&;<>()$`*?[]{}#~\n")  # what the first word is not found beside
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_NOT_FOUND = (126, 127)  # statuses of shells: it cannot be executed, and there is none
_COMPLAINT = re.compile(r"^.*: (?:(?:command )?not found|Permission denied)$", re.MULTILINE)


def check(command: str) -> None:
    """Raise an error if a shell command cannot be run at all.

    Args:
        command: What is given to the shell.

    Raises:
        UsageError: Its text says what is wrong and what to run instead.
    """
    asked = subprocess.run(
        [SHELL, "-n", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if asked.returncode:
        said = asked.stderr.decode(errors="replace").strip().splitlines()[-1:]
        shown = f"{SHELL} -n -c {shlex.quote(command)}"
        raise UsageError(f"--cmd: the shell does not take it: {''.join(said)}", command=shown)
    word = first_word(command)
    if word and not _is_found(word):
        raise _no_such(word, corrected(word), command)


def check_end(command: str, tried: Try) -> None:
    """Raise an error if the shell found no command in the run that has ended.

    Raises:
        UsageError: Its text is what the shell said.
    """
    status = tried.ended.status
    said = _COMPLAINT.findall(tried.ended.errors) if status in _NOT_FOUND else []
    if said:
        raise UsageError(
            f"--cmd: it ended with status {status}, which says nothing about imports: {said[-1]}",
            command=f"{SHELL} -c {shlex.quote(command)}",
        )


def first_word(command: str) -> str:
    """Return the word that names the program; empty where only the shell can tell."""
    if set(command) & _SYNTAX:
        return ""
    words = iter(shlex.split(command))
    return next((word for word in words if not _ASSIGNMENT.match(word)), "")


def _is_found(word: str) -> bool:
    asked = subprocess.run(
        [SHELL, "-c", 'command -v -- "$1"', "sh", word],
        stdin=subprocess.DEVNULL, capture_output=True, check=False,
    )  # fmt: skip
    return asked.returncode == 0


def corrected(word: str) -> str:
    """Return what was probably meant by a word that names no command; empty if nothing is near."""
    from difflib import get_close_matches

    if os.path.isfile(word):
        if word.endswith(".py"):
            return f"python {shlex.quote(word)}"
        place = word if os.path.dirname(word) else os.path.join(".", word)
        return shlex.quote(place) if os.access(word, os.X_OK) else f"sh {shlex.quote(word)}"
    return next(iter(get_close_matches(word, set(_commands()), 1, 0.75)), "")


def _commands() -> Iterator[str]:
    """Yield the names of the programs on PATH."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        try:
            yield from os.listdir(folder or ".")
        except OSError:
            continue


def _no_such(word: str, right: str, command: str) -> UsageError:
    what = f"--cmd: there is no command called {word!r}"
    if not right:
        return UsageError(what, command=f"command -v {shlex.quote(word)}")
    given = shlex.quote(word) if shlex.quote(word) in command else word
    new = command.replace(given, right, 1)
    return UsageError(what, remedy=f"did you mean {right!r}?", wrong=command, right=new)
