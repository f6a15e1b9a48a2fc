"""What the first word of a command line names, and how it is started with the guard.

A file that exists wins over a command of that name on ``PATH``. Python sources run in our own
Python; what names its own interpreter is executed as a shell would: console scripts, shell
wrappers, binaries.
"""

from __future__ import annotations

import os
import re
import sys
from typing import NamedTuple

from cudaguard.files import read_start
from cudaguard.system.shareable import program_alone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SITE_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_site")
# Tells our sitecustomize which environment the guard was asked for; see there.
PREFIX_VARIABLE = "CUDAGUARD_RUN_PREFIX"
PACKAGES_VARIABLE = "CUDAGUARD_RUN_PACKAGES"  # the folder with what we depend on
_UNGUARDED = frozenset("IES")  # options of Python under which the guard cannot get in
_HEAD = 8  # bytes of a file that say what it is
# A script with an interpreter of its own, and binaries.
_EXECUTED = (b"#!", b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
_PYTHON = re.compile(r"^(?:python|pypy)w?[\d.]*(?:\.exe)?$")
_SOURCES = (".py", ".pyw", ".pyc", ".pyz")


class Program(NamedTuple):
    """What is run, as it stands on the command line behind the options of Python.

    Args:
        words: The script, ``-m MODULE`` or ``-c CODE``, or another command; and its arguments.
        script: The path of a script or command; empty for everything else.
    """

    words: tuple[str, ...]
    script: str

    def without_arguments(self) -> Program:
        """Return what others may read of it."""
        return self._replace(words=tuple(program_alone(self.words)))


class Launch(NamedTuple):
    """What is executed for a command line.

    Args:
        program: The program, for the report.
        command: What is executed and its arguments; the first is a path.
        prefix: The environment (``sys.prefix``) whose Pythons get the guard; empty: all do, as
            no one knows which Python a command starts.
    """

    program: Program
    command: tuple[str, ...]
    prefix: str


def split(arguments: Sequence[str], with_value: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return (our own options, what is handed to Python: its options, the program, arguments).

    argparse cannot do it: it takes the program's ``-m`` and ``-c`` for options of ours.

    Args:
        arguments: What follows the name of the command.
        with_value: Options of ours that take a value.
    """
    own: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest[0]
        is_long = word.startswith("--") and word != "--"
        if not (is_long or word in ("-h", "-v") or word[:2] in with_value):
            break
        count = 2 if word in with_value else 1
        own += rest[:count]
        del rest[:count]
    return own, rest


def seconds(text: str) -> float:
    """Return the value of ``--timeout``.

    Raises:
        ArgumentTypeError: It is no time.
    """
    from argparse import ArgumentTypeError

    try:
        found = float(text)
    except ValueError:
        found = 0
    if not 0 < found < float("inf"):
        raise ArgumentTypeError(f"expected a number of seconds above 0, got {text!r}")
    return found


def launch(
    words: Sequence[str], options: Sequence[str], environ: Mapping[str, str]
) -> tuple[Launch, str]:
    """Return what is executed for a command line, and what is wrong with it if anything is.

    Args:
        words: The command line behind our own options: options of Python, the program.
        options: Options that our own Python was started with; the program gets them too.
        environ: The environment; its ``PATH`` counts.
    """
    program, problem = parsed(words)
    ours = Launch(program, (sys.executable, *options, *words), sys.prefix)
    if problem or not program.script:
        return ours, problem
    word, *arguments = program.words
    path, problem = _path_of(word, environ)
    if problem or not path:
        return ours, problem
    given = words[: len(words) - len(program.words)]  # options of Python, and perhaps --
    if path == sys.executable:
        if given:
            return ours, f"put the options of Python after {word}, not before it"
        return launch(arguments, options, environ)
    if _is_for_our_python(path):
        found = Program((path, *arguments), path)
        return Launch(found, (sys.executable, *options, *given, path, *arguments), sys.prefix), ""
    if any(option != "--" for option in given):
        return ours, f"{' '.join(given)}: {word} is not run by this Python, which these are for"
    if not os.access(path, os.X_OK):
        return ours, f"{path} is not executable; run: chmod +x {path}"
    return Launch(_program_of(path, arguments), (path, *arguments), ""), ""


def parsed(command: Sequence[str]) -> tuple[Program, str]:
    """Return the program of a command line for Python, and what is wrong with it if anything is."""
    words, nothing = list(command), Program((), "")
    while words and words[0].startswith("-") and words[0] not in ("-", "--"):
        word = words.pop(0)
        if word.startswith("--"):
            return nothing, f"unknown option {word}"
        flags, rest = _letters(word)
        if not _UNGUARDED.isdisjoint(flags):
            return nothing, (
                f"{word}: cannot guard a program run with -I, -E or -S; remove that option"
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


def _letters(word: str) -> tuple[str, str]:
    """Return the plain flags of a word such as ``-Bum``, and what begins at -m, -c, -W or -X."""
    for place, letter in enumerate(word):
        if place and letter in "mcWX":
            return word[1:place], word[place:]
    return word[1:], ""


def _path_of(word: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the file that a word names (empty: Python is to say that there is none), a problem."""
    if os.path.exists(word) and not os.path.isdir(word):
        return _own_python(word), ""
    if os.sep in word or word.endswith(_SOURCES):
        return "", ""  # a folder may be a program, too
    from shutil import which

    beside = os.path.dirname(sys.executable)  # of an environment that is not activated
    found = which(word, path=environ.get("PATH", os.defpath)) or which(word, path=beside)
    if found:
        return _own_python(found), ""
    if os.path.isdir(word):
        return "", ""
    return "", f"{word}: no such file here, and no such command on PATH; a module is run by -m"


def _own_python(path: str) -> str:
    """Return a path, and for another name of our own interpreter ``sys.executable``."""
    is_beside = os.path.dirname(os.path.abspath(path)) == os.path.dirname(sys.executable)
    if is_beside and _PYTHON.match(os.path.basename(path)):
        try:
            return sys.executable if os.path.samefile(path, sys.executable) else path
        except OSError:
            return path
    return path


def _is_for_our_python(path: str) -> bool:
    """Return True if our own Python is to run a file: a source, or one that starts nothing else."""
    if path.endswith(_SOURCES):
        return True
    try:
        return not read_start(path, _HEAD).startswith(_EXECUTED)
    except (OSError, ValueError):  # a pipe, say: Python reads these
        return True


def _program_of(path: str, arguments: Sequence[str]) -> Program:
    """Return what a command runs, as far as its command line tells."""
    if _PYTHON.match(os.path.basename(path)):
        program, problem = parsed(arguments)
        if not problem:
            return program
    return Program((path, *arguments), path)


def guarded_environment(
    mode: str | None, environ: Mapping[str, str], prefix: str = sys.prefix
) -> dict[str, str]:
    """Return the environment that puts the guard up in a Python.

    Args:
        mode: The mode asked for, or None to take it from the environment or the
            configuration file.
        environ: The environment to start from; ``CUDAGUARD=off`` in it beats `mode`.
        prefix: The ``sys.prefix`` of the Pythons that get the guard; empty for all.

    Raises:
        ConfigError: An unknown mode.
    """
    from cudaguard import config
    from cudaguard.core.modes import mode_for_child

    chosen = mode_for_child(mode, environ)
    environment = dict(environ)
    environment[config.MODE_VARIABLE] = chosen
    environment[PREFIX_VARIABLE] = prefix
    if not prefix:
        environment[PACKAGES_VARIABLE] = _packages()
    # The rest as it is: an empty entry, as at the end of "src:", means the working directory.
    before = environ.get("PYTHONPATH", "")
    others = [path for path in before.split(os.pathsep) if path != SITE_FOLDER] if before else []
    environment["PYTHONPATH"] = os.pathsep.join([SITE_FOLDER, *others])
    return environment


def _packages() -> str:
    """Return the folder of what we depend on, for Pythons of environments that lack it."""
    from importlib.util import find_spec

    spec = find_spec("packaging")
    return os.path.dirname(os.path.dirname(spec.origin)) if spec and spec.origin else ""


def interpreter_options() -> list[str]:
    """Return the options this interpreter was started with, so that the program has them too."""
    words: list[str] = getattr(sys, "orig_argv", [])[1:]  # Python 3.10+
    if not words:
        import subprocess

        # Private, and what multiprocessing uses for its children; nothing public tells the same.
        words = getattr(subprocess, "_args_from_interpreter_flags", list)()
    options: list[str] = []
    while words and words[0].startswith("-"):  # up to `-m cudaguard` or the path of our command
        flags, rest = _letters(words.pop(0))
        # Those that keep the guard out were for the launcher, not for the program.
        kept = "".join(flag for flag in flags if flag not in _UNGUARDED)
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
