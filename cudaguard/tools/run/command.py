"""Run a program under the guard from its first line, as ``python`` would run it.

The guard is up before any code of the program, in this process's child and in the Python processes
that it starts. Needs no change of the program and no ``.pth`` file. When the program dies of a
fault, a report says in which import or call, what was mapped, and what to try.
"""

from __future__ import annotations

import os

from cudaguard.files import open_to_write
from cudaguard.tools.common import BROKEN, USAGE, UsageError, add_verbose, add_with_arguments, note
from cudaguard.tools.run import launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

    from cudaguard.tools.run.launch import Launch
    from cudaguard.tools.run.supervise import ProgramEnd

_WITH_VALUE = ("--mode", "--report", "--timeout")
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
        type=launch.seconds,
        default=0,
        help="end the program and what it has started after that time, with status 124; the "
        "report says where it was",
    )
    add_with_arguments(parser)
    add_verbose(parser)
    parser.add_argument(
        "--exec",
        action="store_true",
        help="become the program instead of its parent: the guard is up, there is no report",
    )


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return (our own options, what is handed to Python): see `launch.split`."""
    return launch.split(arguments, _WITH_VALUE)


def execute(args: Namespace) -> int:
    """Run the program and end as it does; on a usage error, return its status."""
    from cudaguard import config
    from cudaguard.errors import ConfigError
    from cudaguard.system.processes import CANNOT_START
    from cudaguard.tools.run.supervise import IS_SUPPORTED, flush

    found, problem = launch.launch(args.program, launch.interpreter_options(), os.environ)
    asked = [name for name in ("report", "timeout") if getattr(args, name)]
    if asked and (args.exec or not IS_SUPPORTED) and not problem:
        reason = "--exec leaves nobody behind" if args.exec else "it is done on Linux only"
        problem = f"--{asked[0]}: {reason}"
    if problem:
        raise UsageError(problem)
    try:
        environment = launch.guarded_environment(args.mode, os.environ, found.prefix)
        if args.report:
            os.close(open_to_write(args.report))  # now, not when hours have been spent
    except (ConfigError, OSError) as error:
        status = USAGE if isinstance(error, ConfigError) else BROKEN
        raise UsageError(str(error), status=status) from error
    is_on = environment[config.MODE_VARIABLE] != "off"
    if IS_SUPPORTED and not args.exec and (asked or is_on):
        return _supervise(args, found, environment)
    flush()
    if os.name == "nt":  # exec there returns to the shell before the program has ended
        import subprocess

        return subprocess.call(found.command, env=environment)
    try:
        return os.execve(found.command[0], found.command, environment)
    except OSError as error:
        note("run", f"{found.command[0]}: {error.strerror}")
        return CANNOT_START


def _supervise(args: Namespace, found: Launch, environment: dict[str, str]) -> int:
    from cudaguard.system.processes import oom_kills
    from cudaguard.tools.run.record import RunRecord
    from cudaguard.tools.run.supervise import run_recorded

    record = RunRecord()
    kills = oom_kills()

    def tell(ended: ProgramEnd) -> None:
        if ended.status or ended.is_late or args.report:
            from cudaguard.tools.run.crash import Report

            report = Report(found, ended, record.folder, kills, record.problem())
            report.tell(args.report, verbose=args.verbose, with_arguments=args.with_arguments)

    return run_recorded("run", found.command, environment, record, tell, timeout=args.timeout)
