"""What `cudaguard bisect` says of causes that no order of imports changes."""

from __future__ import annotations

import shlex

from cudaguard.tools.run.cause_messages import python

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MAKE_SPACE = "free space there, or set TMPDIR to a folder on a disk that has some"
SAVE_MEMORY = "raise the limit (ulimit -v), or give the program less to load"
GIVE_ARGUMENTS = "bisect it again with the arguments with which it fails"


def no_module(top: str) -> str:
    """Return that a module is nowhere."""
    return f"No folder on sys.path has a module called {top}."


def where_it_is(name: str, folder: str) -> str:
    """Return what to do about a module in a folder that is not searched."""
    top = name.partition(".")[0]
    return f"{top} is in {folder}: add that folder to PYTHONPATH"


def install(name: str, near: Sequence[str]) -> str:
    """Return what to do about a module that is not installed."""
    meant = f"did you mean {near[0]}? Otherwise " if near else ""
    return f"{meant}install the package that has {name}, or start the Python that has it"


def find_module(folder: str, program: str) -> str:
    """Return the command that finds a module, or that shows what is installed."""
    if folder:
        return f"PYTHONPATH={shlex.quote(folder)} {python()} {program}".rstrip()
    return f"{python()} -m pip list"


def no_space(said: str) -> str:
    """Return that a file could not be written, with what the system said."""
    return f"A disk that the program writes to is full ({said.partition(':')[0]})."


def no_memory() -> str:
    """Return that memory is used up."""
    return "The program asks for more memory than it may have."


def bad_usage(said: str) -> str:
    """Return that a program does not take its arguments."""
    return f"The program refuses its command line: {said}."


def help_of(program: str) -> str:
    """Return the command that shows which arguments a program takes."""
    return f"{python()} {program} --help"


def without_slots(command: str, id: str, program: str) -> str:
    """Return a command of `explain` that can be pasted: what is to be filled in is."""
    if program:
        command = command.replace("SCRIPT", program)
    if "FILE" in command:
        return "cudaguard doctor --only CG902"
    return command if command and "SCRIPT" not in command else f"cudaguard explain {id}"
