"""Launching: the program that a command line names, and how it is started with the guard.

A file that exists wins over a command of that name on ``PATH``. Python sources run in our own
Python; what names its own interpreter is executed as a shell would: console scripts, shell
wrappers, binaries.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from argparse import ArgumentTypeError
from contextlib import suppress
from typing import NamedTuple

from cudaguard.files import open_to_write, read_start, text_in
from cudaguard.model import MODE_VARIABLE, TYPE_CHECKING
from cudaguard.tools.common import UsageError, add_with_arguments, program_alone

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Mapping, Sequence

SITE_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_site")
# Tells our sitecustomize which environment the guard was asked for; see there.
PREFIX_VARIABLE = "CUDAGUARD_RUN_PREFIX"
PACKAGES_VARIABLE = "CUDAGUARD_RUN_PACKAGES"  # the folder with what we depend on
_UNGUARDED = frozenset("IES")  # options of Python under which the guard cannot get in
# A script with an interpreter of its own, and binaries.
_EXECUTED = (b"#!", b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
_PYTHON = re.compile(r"^(?:python|pypy)w?[\d.]*(?:\.exe)?$")
_SOURCES = (".py", ".pyw", ".pyc", ".pyz")


class Program(NamedTuple):
    """Program as it stands on the command line, behind the options of Python."""

    words: tuple[str, ...]  # script or command, ``-m MODULE`` or ``-c CODE``; and its arguments
    script: str  # the path of a script or command; empty for everything else

    def without_arguments(self) -> Program:
        """Return what others may read of it."""
        return self._replace(words=tuple(program_alone(self.words)))


class Launch(NamedTuple):
    """Command that is executed for a command line, and which Pythons it guards."""

    program: Program  # for the report
    command: tuple[str, ...]  # with its arguments; the first is a path
    # The environment (``sys.prefix``) whose Pythons get the guard; empty: all do, as no one knows
    # which Python a command starts.
    prefix: str


def configure(parser: ArgumentParser, tool: str, told: str = "") -> None:
    """Declare what the commands that run a program share; `told` is what else a timeout does."""
    python = "[OPTION OF PYTHON ...] "
    kinds = ("COMMAND", f"{python}SCRIPT", f"{python}-m MODULE", f"{python}-c CODE")
    parser.usage = "\n       ".join(
        f"cudaguard {tool} [OPTION ...] {kind} [ARG ...]" for kind in kinds
    )
    late = f"end the program and what it has started after that time, with status 124{told}"
    parser.add_argument("--timeout", metavar="SECONDS", type=seconds, default=0, help=late)
    add_with_arguments(parser)


def split(arguments: Sequence[str], with_value: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return (our own options, what is handed to Python: its options, the program, arguments).

    argparse cannot do it: it takes the program's ``-m`` and ``-c`` for options of ours. Those of
    ours that take a value are given.
    """
    own: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest[0]
        is_long = word.startswith("--") and word != "--"
        if not (is_long or word in ("-h", "-v", "-q") or word[:2] in with_value):
            break
        count = 2 if word in with_value else 1
        own += rest[:count]
        del rest[:count]
    return own, rest


def seconds(text: str) -> float:
    """Return the value of ``--timeout``."""
    try:
        found = float(text)
    except ValueError:
        found = 0
    if not 0 < found < float("inf"):
        raise ArgumentTypeError(f"expected a number of seconds above 0, got {text!r}")
    return found


def prepared(args: Namespace, files: Iterable[str]) -> tuple[Launch, dict[str, str]]:
    """Return what is executed for a command line, and in which environment.

    A `UsageError`, ConfigError or OSError: the program, the mode or a file to be written is wrong.
    """
    found = launch_of(args.program, os.environ)
    environment = guarded_environment(args.mode, os.environ, found.prefix)
    for path in files:
        os.close(open_to_write(path))  # now, not when hours have been spent
    return found, environment


def launch_of(words: Sequence[str], environ: Mapping[str, str]) -> Launch:
    """Return what is executed for a command line behind our own options.

    A `UsageError` says that it cannot be executed, or not with the guard.
    """
    program = python_program(words)
    start = (sys.executable, *_interpreter_options())
    word, *arguments = program.words
    path = _path_of(word, environ) if program.script else ""
    if not path:
        return Launch(program, (*start, *words), sys.prefix)
    given = words[: len(words) - len(program.words)]  # options of Python, and perhaps --
    if path == sys.executable:
        if given:
            raise UsageError(f"put the options of Python after {word}, not before it")
        return launch_of(arguments, environ)
    is_python = True  # a source, or what starts nothing else
    if not path.endswith(_SOURCES):
        with suppress(OSError, ValueError):  # a pipe, say: Python reads these
            is_python = not read_start(path, 8).startswith(_EXECUTED)
    if is_python:
        found = Program((path, *arguments), path)
        return Launch(found, (*start, *given, *found.words), sys.prefix)
    if any(option != "--" for option in given):
        given_to = f"{word} is not run by this Python, which these are for"
        raise UsageError(f"{' '.join(given)}: {given_to}")
    if not os.access(path, os.X_OK):
        raise UsageError(f"{path} is not executable; run: chmod +x {path}")
    # What a command runs, as far as its command line tells.
    python = program_of(arguments if _PYTHON.match(os.path.basename(path)) else ())
    found = python if python.words else Program((path, *arguments), path)
    return Launch(found, (path, *arguments), "")


def python_program(command: Sequence[str]) -> Program:
    """Return the program of a command line for Python; a `UsageError` if none can be guarded."""
    words = list(command)
    while words and words[0].startswith("-") and words[0] not in ("-", "--"):
        word = words.pop(0)
        if word.startswith("--"):
            raise UsageError(f"unknown option {word}")
        flags, rest = _letters(word)
        if not _UNGUARDED.isdisjoint(flags):
            problem = "cannot guard a program run with -I, -E or -S; remove that option"
            raise UsageError(f"{word}: {problem}")
        if rest[:1] in ("m", "c"):
            if len(rest) == 1 and not words:
                raise UsageError(f"{word} is followed by nothing")
            return Program((*filter(None, (f"-{rest[0]}", rest[1:])), *words), "")
        if len(rest) == 1:  # -W and -X with their argument in the next word
            del words[:1]
    if words[:1] == ["--"]:
        del words[0]
    if not words:
        raise UsageError(
            "expected a script or command, -m MODULE, -c CODE, or - for a program on standard input"
        )
    return Program(tuple(words), words[0] if words[0] != "-" else "")


def program_of(command: Sequence[str]) -> Program:
    """Return the program that a Python was started with; without words if that is not known."""
    try:
        return python_program(command)
    except UsageError:
        return Program((), "")


def debugger(words: Sequence[str]) -> str:
    """Return what shows the C stack of a program that crashes."""
    return f"gdb -batch -ex run -ex backtrace --args {shlex.join((sys.executable, *words))}"


def _letters(word: str) -> tuple[str, str]:
    """Return the plain flags of a word such as ``-Bum``, and what begins at -m, -c, -W or -X."""
    for place, letter in enumerate(word):
        if place and letter in "mcWX":
            return word[1:place], word[place:]
    return word[1:], ""


def _path_of(word: str, environ: Mapping[str, str]) -> str:
    """Return the file that a word names; empty if Python is to say that there is none."""
    found: str | None = word
    if not os.path.exists(word) or os.path.isdir(word):
        if os.sep in word or word.endswith(_SOURCES):
            return ""  # a folder may be a program, too
        from shutil import which

        beside = os.path.dirname(sys.executable)  # of an environment that is not activated
        found = which(word, path=environ.get("PATH", os.defpath)) or which(word, path=beside)
    if not found:
        if os.path.isdir(word):
            return ""
        missing = "no such file here, and no such command on PATH; a module is run by -m"
        raise UsageError(f"{word}: {missing}")
    is_beside = os.path.dirname(os.path.abspath(found)) == os.path.dirname(sys.executable)
    if is_beside and _PYTHON.match(os.path.basename(found)):  # perhaps another name of our own
        with suppress(OSError):
            return sys.executable if os.path.samefile(found, sys.executable) else found
    return found


def guarded_environment(
    mode: str | None, environ: Mapping[str, str], prefix: str = sys.prefix
) -> dict[str, str]:
    """Return an environment, completed so that the Pythons of a prefix (empty: all) are guarded.

    The mode None stands for that of the environment or the configuration file; ``CUDAGUARD=off`` in
    the environment beats any. A ConfigError says that there is no such mode.
    """
    from cudaguard.core.settings import mode_for_child

    chosen = mode_for_child(mode, environ)
    environment = dict(environ)
    # Set by Python itself for the C locale (PEP 538): it does other things if it is there already.
    said = text_in("/proc/self/environ")
    if said and f"\0LC_CTYPE={environ.get('LC_CTYPE')}\0" not in f"\0{said}":
        environment.pop("LC_CTYPE", None)
    environment[MODE_VARIABLE] = chosen
    environment[PREFIX_VARIABLE] = prefix
    if not prefix:  # for Pythons of environments that lack what we depend on
        from importlib.util import find_spec

        spec = find_spec("packaging")
        origin = spec.origin or "" if spec else ""
        environment[PACKAGES_VARIABLE] = os.path.dirname(os.path.dirname(origin))
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
        flags, rest = _letters(words.pop(0))
        # Those that keep the guard out were for the launcher, not for the program.
        if kept := "".join(flag for flag in flags if flag not in _UNGUARDED):
            options.append(f"-{kept}")
        if rest[:1] in ("m", "c"):
            break
        if rest:
            options.append(f"-{rest}")
            if len(rest) == 1:
                options += words[:1]
                del words[:1]
    return options
