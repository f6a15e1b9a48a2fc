"""Run a program under the guard from its first line, as ``python`` would run it.

The guard is up before any code of the program, in this process and in the Python processes it
starts. Needs no change of the program and no ``.pth`` file.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping, Sequence

SITE_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_site")
# Tells our sitecustomize which environment the guard was asked for; see there.
PREFIX_VARIABLE = "CUDAGUARD_RUN_PREFIX"
UNGUARDED = frozenset("IES")  # options of Python under which the guard cannot get in


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.usage = (
        "cudaguard run [--mode MODE] [OPTION OF PYTHON ...] SCRIPT [ARG ...]\n"
        "       cudaguard run [--mode MODE] [OPTION OF PYTHON ...] -m MODULE [ARG ...]\n"
        "       cudaguard run [--mode MODE] [OPTION OF PYTHON ...] -c CODE [ARG ...]"
    )
    parser.epilog = "example: cudaguard run --mode strict train.py --epochs 3"
    parser.add_argument("--mode", help="off, observe, warn, fix or strict (default: as configured)")


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return (our own options, what is handed to Python: its options, the program, arguments).

    argparse cannot do it: it takes the program's ``-m`` and ``-c`` for options of ours.
    """
    own: list[str] = []
    rest = list(arguments)
    while rest:
        if rest[0] == "--mode":
            own += rest[:2]
            del rest[:2]
        elif rest[0].startswith("--mode=") or rest[0] in ("-h", "--help"):
            own.append(rest.pop(0))
        else:
            break
    return own, rest


def letters(word: str) -> tuple[str, str]:
    """Return the plain flags of a word such as ``-Bum``, and what begins at -m, -c, -W or -X."""
    for place, letter in enumerate(word):
        if place and letter in "mcWX":
            return word[1:place], word[place:]
    return word[1:], ""


def problem_of(command: Sequence[str]) -> str:
    """Return what is wrong with a command line for Python, or an empty string."""
    words = list(command)
    while words and words[0].startswith("-") and words[0] not in ("-", "--"):
        word = words.pop(0)
        if word.startswith("--"):
            return f"unknown option {word}; expected --mode, an option of Python, or the program"
        flags, rest = letters(word)
        if not UNGUARDED.isdisjoint(flags):
            return (
                f"{word}: under -I, -E and -S Python reads neither PYTHONPATH nor sitecustomize, "
                "through which the guard gets in"
            )
        if rest[:1] in ("m", "c"):
            return f"{word} is followed by nothing" if len(rest) == 1 and not words else ""
        if len(rest) == 1:  # -W and -X with their argument in the next word
            del words[:1]
    if words[:1] == ["--"]:
        del words[0]
    return "" if words else "expected a script, -m MODULE or -c CODE"


def execute(args: Namespace) -> int:
    """Replace this process by Python running the program; returns only on a usage error."""
    from cudaguard.errors import ConfigError

    problem = problem_of(args.program)
    if problem:
        print(f"cudaguard run: {problem}", file=sys.stderr)
        return 2
    try:
        environment = guarded_environment(args.mode, os.environ)
    except ConfigError as error:
        print(f"cudaguard run: {error}", file=sys.stderr)
        return 2
    command = [sys.executable, *_interpreter_options(), *args.program]
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "nt":  # exec there returns to the shell before the program has ended
        import subprocess

        return subprocess.call(command, env=environment)
    return os.execve(sys.executable, command, environment)


def guarded_environment(mode: str | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that puts the guard up in a Python of this environment.

    Args:
        mode: The mode asked for, or None to take it from the environment or the
            configuration file.
        environ: The environment to start from; ``CUDAGUARD=off`` in it beats `mode`.

    Raises:
        ConfigError: An unknown mode, or a configuration file that cannot be used.
    """
    from cudaguard import config

    said, _ = config.read_environment(environ)
    chosen = None if mode is None else config.parse_mode(mode, "--mode")
    if said.mode == "off":
        chosen = "off"
    elif chosen is None:
        file = config.read_file(said.config) if said.config else None
        chosen = said.mode or (file.mode if file is not None else None) or "fix"
    environment = dict(environ)
    environment[config.MODE_VARIABLE] = chosen
    environment[PREFIX_VARIABLE] = sys.prefix
    # The rest as it is: an empty entry, as at the end of "src:", means the working directory.
    before = environ.get("PYTHONPATH", "")
    others = [path for path in before.split(os.pathsep) if path != SITE_FOLDER] if before else []
    environment["PYTHONPATH"] = os.pathsep.join([SITE_FOLDER, *others])
    return environment


def _interpreter_options() -> list[str]:
    """Return the options this interpreter was started with, so that the program has them too."""
    words: list[str] = getattr(sys, "orig_argv", [])[1:]  # Python 3.10+
    if not words:
        import subprocess

        # Private, and what multiprocessing uses for its children; nothing public tells the same.
        words = getattr(subprocess, "_args_from_interpreter_flags", list)()
    options: list[str] = []
    while words and words[0].startswith("-"):  # up to `-m cudaguard` or the path of our command
        flags, rest = letters(words.pop(0))
        # Those that keep the guard out were for the launcher, not for the program.
        kept = "".join(flag for flag in flags if flag not in UNGUARDED)
        if kept:
            options.append(f"-{kept}")
        if rest[:1] in ("m", "c"):
            break
        if rest:
            options.append(f"-{rest}")
            if len(rest) == 1:
                options += words[:1]
                del words[:1]
    return options
