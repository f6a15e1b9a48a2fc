"""``doctor --python``: the same command, run by the interpreter of another environment."""

from __future__ import annotations

import os
import re
import shlex
import sys

from cudaguard.system import lending
from cudaguard.system.facts import Facts
from cudaguard.tools.common import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

OLDEST = (3, 9)
_PATIENCE = 30.0  # seconds for an interpreter to start; a network disk may be slow
_SIGN = "cudaguard "
_ASK = f"import sys; sys.stdout.write({_SIGN!r} + '%d.%d' % sys.version_info[:2])"
_IN_FOLDER = ("bin/python", "bin/python3")


def enter(path: str, arguments: Sequence[str]) -> NoReturn:
    """Become the interpreter of another environment, and run the same command there.

    Args:
        path: The interpreter, its name on PATH, or the folder of an environment.
        arguments: Those of this command line.

    Raises:
        UsageError: That is no interpreter, or it is too old.
    """
    python = _file(path)
    version, said = _version(python)
    if not version:
        raise _not_python(path, said)
    if version < OLDEST:
        has, needs = (".".join(map(str, one)) for one in (version, OLDEST))
        raise UsageError(
            f"--python: {path} is Python {has}. cudaguard needs {needs} or newer there."
        )
    program = lending.visit(path, os.environ)
    try:
        os.execve(python, [python, "-c", program, *arguments], {**os.environ, "CUDAGUARD": "off"})
    except OSError as error:
        raise _not_python(path, error.strerror or str(error)) from None


def _not_python(path: str, said: str) -> UsageError:
    return UsageError(
        f"--python: {path} is not a working Python interpreter: {said}.",
        command=f"{shlex.quote(path)} --version",
    )


def _file(path: str) -> str:
    import shutil

    place = os.path.expanduser(path)
    if os.path.isdir(place):
        for name in _IN_FOLDER:
            if os.path.isfile(os.path.join(place, name)):
                return os.path.abspath(os.path.join(place, name))
        raise UsageError(
            f"--python: {path} is no environment: it has no {_IN_FOLDER[0]}.",
            command=f"ls -a {shlex.quote(path)}",
        )
    found = shutil.which(place)  # a path with a slash is taken as it is
    if found:
        return os.path.abspath(found)  # links are kept: by its path it knows its environment
    quoted = shlex.quote(path)
    if os.path.exists(place):
        raise UsageError(f"--python: {path} cannot be executed.", command=f"ls -l {quoted}")
    raise UsageError(
        f"--python: {quoted} does not exist. Give an interpreter or the folder of a venv."
    )


def _version(file: str) -> tuple[tuple[int, ...], str]:
    """Return the version of an interpreter, or nothing and what it has said instead."""
    from cudaguard.system.child import run

    try:
        ended = run((file, "-E", "-S", "-c", _ASK), os.environ, _PATIENCE)
    except OSError as error:
        return (), error.strerror or str(error)
    if ended.status is None:
        return (), f"it did not answer within {_PATIENCE:g} s"
    said = ended.output.partition(_SIGN)
    if ended.status or said[0] or not said[2].replace(".", "").isdecimal():
        lines = (ended.errors or ended.output).split("\n")
        return (), next((line.strip() for line in lines if line.strip()), "it says nothing")
    return tuple(map(int, said[2].split("."))), ""


# --- commands that a finding names ---------------------------------------------------------


def command_here(command: str) -> str:
    """Return a command such that it is about the environment that was looked at."""
    parts = command.split(" && ")
    if lending.host and any(map(_NEEDS_GUARD.match, parts)) and not Facts().version("cudaguard"):
        parts.insert(0, "pip install cudaguard")
    return " && ".join(map(_part_here, parts))


def _part_here(part: str) -> str:
    variable, _, rest = part.partition(" ")
    if "=" in variable and rest:
        return f"{variable} {_part_here(rest)}"
    words = part.split(" ", 2)
    python = shlex.quote(sys.executable)
    if words[0] == "pip" and not _is_pip_of_this_python():
        return _pip(python, part[4:])
    if not lending.host:
        return part
    if words[0] == "python":
        return f"{python}{part[6:]}"
    if words[:2] == ["cudaguard", "doctor"]:
        return " ".join(["cudaguard doctor --python", shlex.quote(lending.host), *words[2:]])
    if words[0] == "cudaguard" and words[1:2] and words[1] not in _ANYWHERE:
        return f"{python} -m {part}"
    return part


# Commands of ours that are not about an environment.
_ANYWHERE = ("explain", "rules")
_NEEDS_GUARD = re.compile(r"export CUDAGUARD=|(?:\w+=\S* )*cudaguard (?!doctor|explain|rules)")


def _pip(python: str, arguments: str) -> str:
    import shutil

    from cudaguard.system.torch_build import folder_of

    if not folder_of("pip"):
        if shutil.which("uv"):  # its environments have none
            verb, _, rest = arguments.partition(" ")
            return f"uv pip {verb} --python {python} {rest}".rstrip()
        if folder_of("ensurepip"):
            return f"{python} -m ensurepip && {python} -m pip {arguments}"
    return f"{python} -m pip {arguments}"


def _is_pip_of_this_python() -> bool:
    import shutil
    import sysconfig

    folder = os.path.dirname(os.path.abspath(shutil.which("pip") or ""))
    return folder == os.path.abspath(sysconfig.get_path("scripts"))
