"""Run a program under the guard from its first line, as ``python`` would run it.

The guard is up before any code of the program, in this process's child and in the Python processes
that it starts. Needs no change of the program and no ``.pth`` file. When the program dies of a
fault, a report says in which import or call, what was mapped, and what to try.
"""

from __future__ import annotations

import os
import sys

from cudaguard.files import open_to_write
from cudaguard.tools.common import BROKEN, USAGE, UsageError, add_verbose, note
from cudaguard.tools.layout import is_terminal
from cudaguard.tools.run.program import FLAGS, UNGUARDED, WITH_VALUE, letters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping, Sequence

    from cudaguard.tools.run.launch import Launch

SITE_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_site")
# Tells our sitecustomize which environment the guard was asked for; see there.
PREFIX_VARIABLE = "CUDAGUARD_RUN_PREFIX"
PACKAGES_VARIABLE = "CUDAGUARD_RUN_PACKAGES"  # the folder with what we depend on


EXAMPLES = """\
examples:
  cudaguard run train.py --epochs 3           as `python train.py --epochs 3`, under the guard
  cudaguard run torchrun --nproc-per-node 2 train.py
  cudaguard run vllm serve MODEL              any command: what is on PATH, ./python.sh
  cudaguard run -m pkg.train                  a module
  cudaguard run -X dev -W error train.py      with options of Python
  cudaguard run - < train.py                  the program comes from standard input
  cudaguard run --mode strict train.py        stop where a fault cannot be repaired
  cudaguard run --timeout 600 --report crash.json train.py

It ends as the program does; 124: its time was up; 2: wrong usage.
"""


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.usage = (
        "cudaguard run [OPTION ...] COMMAND [ARG ...]\n"
        "       cudaguard run [OPTION ...] [OPTION OF PYTHON ...] SCRIPT [ARG ...]\n"
        "       cudaguard run [OPTION ...] [OPTION OF PYTHON ...] -m MODULE [ARG ...]\n"
        "       cudaguard run [OPTION ...] [OPTION OF PYTHON ...] -c CODE [ARG ...]"
    )
    parser.epilog = EXAMPLES
    parser.add_argument("--mode", help="off, observe, warn, fix or strict (default: as configured)")
    parser.add_argument("--report", metavar="FILE", help="write how it ended to FILE, as JSON")
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=_seconds,
        default=0,
        help="end the program and what it has started after that time, with status 124; the "
        "report says where it was",
    )
    parser.add_argument(
        "--why",
        action="store_true",
        help="if it dies of a signal, run it A SECOND TIME, silently and slower, to learn which "
        "library was being initialized",
    )
    add_verbose(parser, is_short=False)
    parser.add_argument(
        "--exec",
        action="store_true",
        help="become the program instead of its parent: the guard is up, there is no report",
    )


def _seconds(text: str) -> float:
    from argparse import ArgumentTypeError

    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds < float("inf"):
        raise ArgumentTypeError(f"expected a number of seconds above 0, got {text!r}")
    return seconds


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return (our own options, what is handed to Python: its options, the program, arguments).

    argparse cannot do it: it takes the program's ``-m`` and ``-c`` for options of ours.
    """
    own: list[str] = []
    rest = list(arguments)
    while rest:
        if rest[0] in WITH_VALUE:
            own += rest[:2]
            del rest[:2]
        elif rest[0] in FLAGS or rest[0].partition("=")[0] in WITH_VALUE:
            own.append(rest.pop(0))
        else:
            break
    return own, rest


def execute(args: Namespace) -> int:
    """Run the program and end as it does; on a usage error, return its status."""
    from cudaguard import config
    from cudaguard.core.modes import is_on
    from cudaguard.errors import ConfigError
    from cudaguard.tools.run.ending import flush
    from cudaguard.tools.run.launch import launch
    from cudaguard.tools.run.supervise import CANNOT_START, IS_SUPPORTED

    found, problem = launch(args.program, interpreter_options(), os.environ)
    asked = [name for name in ("report", "timeout", "why") if getattr(args, name)]
    if asked and (args.exec or not IS_SUPPORTED) and not problem:
        reason = "--exec leaves nobody behind" if args.exec else "it is done on Linux only"
        problem = f"--{asked[0]}: {reason}"
    if problem:
        raise UsageError(problem)
    try:
        environment = guarded_environment(args.mode, os.environ, found.prefix)
        if args.report:
            os.close(open_to_write(args.report))  # now, not when hours have been spent
    except (ConfigError, OSError) as error:
        status = USAGE if isinstance(error, ConfigError) else BROKEN
        raise UsageError(str(error), status=status) from error
    flush()
    if IS_SUPPORTED and not args.exec and (asked or is_on(environment[config.MODE_VARIABLE])):
        return _supervise(args, found, environment)
    if os.name == "nt":  # exec there returns to the shell before the program has ended
        import subprocess

        return subprocess.call(found.command, env=environment)
    try:
        return os.execve(found.command[0], found.command, environment)
    except OSError as error:
        note("run", f"{found.command[0]}: {error.strerror}")
        return CANNOT_START


def _supervise(args: Namespace, found: Launch, environment: dict[str, str]) -> int:
    from cudaguard.core.record import DUMP_VARIABLE, FOLDER_VARIABLE
    from cudaguard.system.limits import oom_kills
    from cudaguard.tools.run import supervise
    from cudaguard.tools.run.ending import InterruptedReportError, end_as, flush, interruptible
    from cudaguard.tools.run.record import RunRecord

    record = RunRecord()
    environment.pop(DUMP_VARIABLE, None)  # of a run around this one
    environment[FOLDER_VARIABLE] = record.folder
    asking = [supervise.DUMP_SIGNAL] if args.timeout else []
    on_quit = None
    if record.folder and is_terminal(sys.stderr):  # Ctrl-\ is typed, and shown there
        from cudaguard.tools.run.look import Look

        asking = [supervise.DUMP_SIGNAL, supervise.QUIT]
        on_quit = Look(found.program, record.folder).show
    if asking:
        environment[DUMP_VARIABLE] = ",".join(map(str, asking))
    supervisor = supervise.Supervisor(
        found.command,
        timeout=args.timeout,
        dump_signal=asking[0] if asking else 0,
        kept=record.lock,
        on_quit=on_quit,
    )
    kills = oom_kills()
    try:
        ended = supervisor.run(environment)
    except supervise.NoProcessError as error:
        record.remove()
        for variable in (FOLDER_VARIABLE, DUMP_VARIABLE):
            environment.pop(variable, None)
        note("run", f"{error}; the program runs unsupervised")
        flush()
        supervisor.become(environment)
    except BaseException:
        record.remove()
        raise
    try:
        if ended.status or ended.is_late or args.report:
            from cudaguard.tools.run.crash import Report, tell

            with interruptible():
                report = Report(found, ended, record.folder, kills, record.problem())
            if args.why and report.has_crashed and record.folder:
                report.learn_initializing(supervisor, environment)
            with interruptible():
                tell(report, args.report, verbose=args.verbose)
    except InterruptedReportError as error:
        note("run", f"no report: {error} came while it was written")
    except Exception as error:  # whatever it is, the program's end is what counts
        note("run", f"no report: {type(error).__name__}: {error}")
    finally:
        record.remove()
    return end_as(ended)


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
    if not prefix or not os.path.isdir(SITE_FOLDER):  # of a zip application, no Python has any
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
