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
    from collections.abc import Sequence

SITE_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_site")
# Tells our sitecustomize which environment the guard was asked for; see there.
PREFIX_VARIABLE = "CUDAGUARD_RUN_PREFIX"


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.usage = (
        "cudaguard run [--mode MODE] SCRIPT [ARG ...]\n"
        "       cudaguard run [--mode MODE] -m MODULE [ARG ...]\n"
        "       cudaguard run [--mode MODE] -c CODE [ARG ...]"
    )
    parser.epilog = "example: cudaguard run --mode strict train.py --epochs 3"
    parser.add_argument("--mode", help="off, observe, warn, fix or strict (default: as configured)")


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return (our own options, the program with its arguments).

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
        elif rest[0] == "--":
            return own, rest[1:]
        else:
            break
    return own, rest


def execute(args: Namespace) -> int:
    """Replace this process by Python running the program; returns only on a usage error."""
    from cudaguard.errors import ConfigError

    program: list[str] = args.program
    if not program or (program[0] in ("-m", "-c") and len(program) < 2):
        print("cudaguard run: expected a script, -m MODULE or -c CODE", file=sys.stderr)
        return 2
    if program[0].startswith("-") and program[0] not in ("-m", "-c"):
        print(
            f"cudaguard run: unknown option {program[0]}; expected --mode, a script, -m or -c",
            file=sys.stderr,
        )
        return 2
    try:
        environment = guarded_environment(args.mode, os.environ)
    except ConfigError as error:
        print(f"cudaguard run: {error}", file=sys.stderr)
        return 2
    command = [sys.executable, *_interpreter_options(), *program]
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "nt":  # exec there returns to the shell before the program has ended
        import subprocess

        return subprocess.call(command, env=environment)
    return os.execve(sys.executable, command, environment)


def guarded_environment(mode: str | None, environ: os._Environ[str]) -> dict[str, str]:
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
    paths = [SITE_FOLDER, *filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))]
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    return environment


def _interpreter_options() -> list[str]:
    """Return the options this interpreter was started with, so that the program has them too."""
    import subprocess

    # Private, and what multiprocessing uses for its children; nothing public tells the same.
    options: list[str] = getattr(subprocess, "_args_from_interpreter_flags", list)()
    # These make Python ignore PYTHONPATH, which is how the guard gets in.
    return [option for option in options if option not in ("-I", "-E")]
