"""The wording of doctor's own command line."""

from __future__ import annotations

import shlex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def parted(text: str) -> tuple[str, str]:
    """Return an error of these without the command that it ends with, and the command."""
    what, _, command = text.partition(" run: ")
    return what, command


def no_such_python(path: str) -> str:
    """--python names nothing."""
    place = shlex.quote(path)
    return f"--python: {place} does not exist. Give an interpreter or the folder of a venv."


def no_python_in(folder: str, expected: str) -> str:
    """--python names a folder that is no environment."""
    command = f"ls -a {shlex.quote(folder)}"
    return f"--python: {folder} is no environment: it has no {expected}. run: {command}"


def not_executable(path: str) -> str:
    """--python names a file that cannot be run."""
    return f"--python: {path} cannot be executed. run: ls -l {shlex.quote(path)}"


def not_python(path: str, said: str) -> str:
    """--python names a program of another kind, or one that does not start."""
    command = f"{shlex.quote(path)} --version"
    return f"--python: {path} is not a working Python interpreter: {said}. run: {command}"


def old_python(path: str, version: Sequence[int], oldest: Sequence[int]) -> str:
    """--python names an interpreter that cannot run cudaguard."""
    has, needs = (".".join(map(str, one)) for one in (version, oldest))
    return f"--python: {path} is Python {has}. cudaguard needs {needs} or newer there."


# --- doctor --diff -------------------------------------------------------------------------

TOO_FEW = "--diff: got 1 file, expected two or more, as in --diff a.md b.md"
_WRITE = "run: cudaguard doctor --bundle FILE.md"


def unreadable(path: str, why: str) -> str:
    """A file of ``--diff`` that cannot be read."""
    return f"{path} cannot be read: {why}. run: ls -l {shlex.quote(path)}"


def no_bundle(path: str) -> str:
    """A file of ``--diff`` that is something else."""
    return f"{path} is no bundle of doctor. Write one there. {_WRITE}"


def other_release(path: str) -> str:
    """A bundle in another form."""
    return f"{path} was written by another release of cudaguard. Write it again. {_WRITE}"


def damaged(path: str) -> str:
    """A bundle that is not whole."""
    return f"{path} is damaged. Write it again. {_WRITE}"


def without_inventory(path: str) -> str:
    """A bundle from a host that could not read in time what is installed."""
    return f"{path} has no inventory: what is installed could not be read there. {_WRITE}"
