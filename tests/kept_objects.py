"""A C++ compiler that does nothing twice: what builds with torch's headers wait for, by the minute.

`main` is the program behind ``g++`` and ``c++`` in the folder that the fixture `compilers` makes.
What a command makes of source files alone is kept, like all else that is (see `Kept`), under the
text of the sources, the words of the command and the version of the compiler. Headers are the
same as long as their folders have the same names: those of kept environments are named by what is
in them. Any other command is the compiler's own.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from .kept import Kept

NAMES = ("g++", "c++")
SOURCES = (".cpp", ".cc", ".cxx")
PLACES = ("-o", "-MF", "-MT")  # the word behind says where something goes to, not what it is
MADE, SAID = "made", "said"
START = """#!/bin/sh
exec {python} -I -S -c {code} {home} {compiler} "$@"
"""
CODE = "import sys; sys.path.insert(0, {root!r}); from tests.kept_objects import main; main()"


class FailedError(Exception):
    """The compiler ended with a status that is not 0, which is the argument."""


def make_compilers(folder: Path, kept: Kept) -> Path:
    """Put the compilers into a folder, and return it."""
    code = CODE.format(root=str(Path(__file__).resolve().parents[1]))
    for name in NAMES:
        if compiler := shutil.which(name):
            words = {"python": sys.executable, "code": code, "home": kept.home}
            words = {key: shlex.quote(str(word)) for key, word in words.items()}
            path = folder / name
            path.write_text(START.format(compiler=shlex.quote(compiler), **words), encoding="utf-8")
            path.chmod(0o755)
    return folder


def main() -> None:
    """Compile, or fetch what was compiled: ``HOME COMPILER WORDS...``."""
    home, *command = sys.argv[1:]
    recipe = recipe_of(command)
    output = command[command.index("-o") + 1] if "-o" in command else None
    if recipe is None or output is None:
        os.execv(command[0], command)
    kept = Kept(Path(home), float("inf"))
    try:
        folder = kept.folder("object", recipe, lambda folder: compile_into(folder, command, output))
    except FailedError as failed:
        raise SystemExit(failed.args[0]) from None
    sys.stderr.buffer.write((folder / SAID).read_bytes())
    shutil.copy(folder / MADE, output)


def recipe_of(command: list[str]) -> object:
    """Return what the result depends on; None if that is not sources alone."""
    words, sources = [], []
    places = {at + 1 for at, word in enumerate(command) if word in PLACES}
    for at, word in enumerate(command):
        if word.endswith(SOURCES) and at not in places:
            sources.append(Path(word).read_text(encoding="utf-8"))
        elif word.endswith((".o", ".a")) and at not in places:
            return None
        elif at not in places:
            words.append(word)
    if not sources:
        return None
    version = subprocess.run([command[0], "--version"], stdout=subprocess.PIPE, check=True).stdout
    return version, words, sources


def compile_into(folder: Path, command: list[str], output: str) -> None:
    """Compile, and put the result into a folder, with what the compiler said."""
    done = subprocess.run(command, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.stderr.buffer.write(done.stderr)
        raise FailedError(done.returncode)
    folder.mkdir(parents=True)
    (folder / SAID).write_bytes(done.stderr)
    shutil.copy(output, folder / MADE)
