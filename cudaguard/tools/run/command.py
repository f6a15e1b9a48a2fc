"""Run a program under the guard from its first line, as ``python`` would run it.

The guard is up before any code of the program, in this process's child and in the Python processes
that it starts. Needs no change of the program and no ``.pth`` file. When the program dies of a
fault, a report says in which import or call, what was mapped, and what to try.
"""

from __future__ import annotations

import os

from cudaguard.tools.common import UsageError, add_verbose, note
from cudaguard.tools.run import launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cudaguard.tools.run.supervise import ProgramEnd

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
    parser.epilog = EXAMPLES
    parser.add_argument("--mode", help="off, observe, warn, fix or strict (default: as configured)")
    parser.add_argument("--report", metavar="FILE", help="write how it ended to FILE, as JSON")
    launch.configure(
        parser,
        "run",
        "end the program and what it has started after that time, with status 124; the report "
        "says where it was",
    )
    add_verbose(parser)
    parser.add_argument(
        "--exec",
        action="store_true",
        help="become the program instead of its parent: the guard is up, there is no report",
    )


def execute(args: Namespace) -> int:
    """Run the program and end as it does; on a usage error, return its status."""
    from cudaguard.config import MODE_VARIABLE
    from cudaguard.system.processes import CANNOT_START
    from cudaguard.tools.run.supervise import IS_SUPPORTED, flush

    asked = [name for name in ("report", "timeout") if getattr(args, name)]
    if asked and (args.exec or not IS_SUPPORTED):
        reason = "--exec leaves nobody behind" if args.exec else "it is done on Linux only"
        raise UsageError(f"--{asked[0]}: {reason}")
    found, environment = launch.prepared(args, filter(None, [args.report]))
    if IS_SUPPORTED and not args.exec and (asked or environment[MODE_VARIABLE] != "off"):
        from cudaguard.system.processes import oom_kills
        from cudaguard.tools.run.record import RunRecord
        from cudaguard.tools.run.supervise import run_recorded

        record, kills = RunRecord(), oom_kills()

        def tell(ended: ProgramEnd) -> None:
            if ended.status or ended.is_late or args.report:
                from cudaguard.tools.run.crash import Report

                report = Report(found, ended, record.folder, kills, record.problem())
                report.tell(args.report, verbose=args.verbose, with_arguments=args.with_arguments)

        return run_recorded("run", found.command, environment, record, tell, timeout=args.timeout)
    flush()
    if os.name == "nt":  # exec there returns to the shell before the program has ended
        import subprocess

        return subprocess.call(found.command, env=environment)
    try:
        return os.execve(found.command[0], found.command, environment)
    except OSError as error:
        note("run", f"{found.command[0]}: {error.strerror}")
        return CANNOT_START
