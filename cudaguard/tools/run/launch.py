"""What the first word of a command line names: a script for our own Python, or another command.

A file that exists wins over a command of that name on ``PATH``. Python scripts without an
interpreter of their own, and those of our own environment, run in our own Python; all else is
executed as a shell would: console scripts of other environments, shell wrappers, binaries.
"""

from __future__ import annotations

import os
import re
import sys
from typing import NamedTuple

from cudaguard.files import read_start
from cudaguard.tools.run.program import Program, parsed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_HEAD = 4096  # bytes of a file that say what it is
_BINARIES = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
_PYTHON = re.compile(r"^(?:python|pypy)w?[\d.]*(?:\.exe)?$")
_SOURCES = (".py", ".pyw", ".pyc", ".pyz")
# Where the path of the interpreter holds blanks or is long, pip, uv and conda write a shell script
# that is Python as well.
_POLYGLOT = re.compile(rb"""^#!/bin/sh\n'''exec' ["']?([^"'\n]+?)["']? "\$0" "\$@"\n""")


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
    if word == "SCRIPT":  # as explanations of errors name it
        return "", "SCRIPT stands for your program: give the name of its file"
    return "", f"{word}: no such file here, and no such command on PATH{_suggestion(word)}"


def _suggestion(word: str) -> str:
    from importlib.util import find_spec

    try:
        is_module = word.isidentifier() and find_spec(word) is not None
    except (ImportError, ValueError):
        is_module = False
    return f"; to run the module: cudaguard run -m {word}" if is_module else ""


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
    """Return True if our own Python is to run a file."""
    if path.endswith(_SOURCES):
        return True
    try:
        head = read_start(path, _HEAD)
    except (OSError, ValueError):  # a pipe, say: Python reads these
        return True
    if head.startswith(_BINARIES):
        return False
    words = _interpreter(head)
    if not words:
        return True
    if os.path.basename(words[0]) == "env":
        names = [name for name in words[1:] if not name.startswith("-") and "=" not in name]
        return bool(names and _PYTHON.match(os.path.basename(names[0])))
    return _own_python(words[0]) == sys.executable


def _interpreter(head: bytes) -> list[str]:
    """Return the words of the ``#!`` line; none if there is no such line."""
    polyglot = _POLYGLOT.match(head)
    if polyglot:
        return [os.fsdecode(polyglot[1])]
    if not head.startswith(b"#!"):
        return []
    return os.fsdecode(head[2:].partition(b"\n")[0]).split()


def _program_of(path: str, arguments: Sequence[str]) -> Program:
    """Return what a command runs, as far as its command line tells."""
    if _PYTHON.match(os.path.basename(path)):
        program, problem = parsed(arguments)
        if not problem:
            return program
    return Program((path, *arguments), path)
