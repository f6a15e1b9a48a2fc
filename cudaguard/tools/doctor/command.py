"""Tell what would break here, and why, before anything is run.

Reads files and metadata; imports no package. --deep imports in child processes, each
with a time limit.
"""

from __future__ import annotations

import sys

from cudaguard.files.text import printable_lines
from cudaguard.model import SEVERITIES
from cudaguard.tools.common import (
    BROKEN,
    FOUND,
    OK,
    Progress,
    UsageError,
    add_format,
    add_verbose,
    known_id,
    note,
    say,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable

    from cudaguard.core.checks import Check, CheckResult
    from cudaguard.system.packages import Site

TIME_LIMIT = 120.0  # seconds for one child
READING_LIMIT = 30.0  # seconds for a check that only reads files
NEVER = "never"
LEVELS = (*SEVERITIES, NEVER)

EXAMPLES = """\
examples:
  cudaguard doctor                             what would break here?
  cudaguard doctor --deep                      also import what is watched, in children
  cudaguard doctor --python ~/train/.venv      look at another environment
  cudaguard doctor --fail-on warning           in a workflow
  cudaguard doctor --bundle report.md          for an issue, with what is installed
  cudaguard doctor --bundle doctor-%h.md       on each host
  cudaguard doctor --diff doctor-*.md          which host differs, and in what?

exit status: 0 nothing at or above --fail-on, 1 found, 2 wrong usage, 3 a check itself failed
"""


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--deep", action="store_true", help="import what is watched, in children, and ask NVML"
    )
    parser.add_argument(
        "--python", metavar="PATH",
        help="look at the environment of this interpreter, or in this folder; it need not have "
        "cudaguard",
    )  # fmt: skip
    parser.add_argument(
        "--timeout", type=float, metavar="S",
        help=f"seconds after which an import in a child (default: {TIME_LIMIT:.0f}), or a check "
        f"that reads files (default: {READING_LIMIT:.0f}), is taken for a hang",
    )  # fmt: skip
    for name, what in (("only", "do this check, and no others"), ("skip", "leave this check out")):
        parser.add_argument(
            f"--{name}", action="append", default=[], metavar="ID",
            help=f"{what}; may be given several times",
        )  # fmt: skip
    parser.add_argument(
        "--fail-on", choices=LEVELS, default="error", help="what status 1 takes (default: error)"
    )
    parser.add_argument(
        "--diff", nargs="+", metavar="FILE",
        help="compare the bundles of several hosts; status 1 if they differ",
    )  # fmt: skip
    parser.add_argument(
        "--bundle", metavar="FILE",
        help="also write a report there, with system, Python, GPUs, driver, torch and packages",
    )  # fmt: skip
    add_verbose(parser, "show each check, all of each note, and long lists whole")
    add_format(parser)


def execute(args: Namespace) -> int:
    """Examine, print, and return the exit status."""
    import signal

    from cudaguard.core import checks as core
    from cudaguard.system import lending
    from cudaguard.system.packages import Site
    from cudaguard.tools.doctor.checks import CHECKS, all_checks
    from cudaguard.tools.doctor.inventory import inventory
    from cudaguard.tools.doctor.writing import Look, enter, write

    if args.diff:
        from cudaguard.tools.doctor import inventory as comparison

        return comparison.execute(args)
    args.only, args.skip = (
        [known_id(id, CHECKS, "check") for id in ids] for ids in (args.only, args.skip)
    )
    problem = _problem(args)
    if problem:
        raise UsageError(problem)
    if args.python is not None and not lending.host:
        enter(args.python, args.given)
    wanted = [
        check
        for id, check in all_checks().items()
        if (id in args.only or not args.only) and id not in args.skip
        and (args.deep or not check.option or id in args.only)
    ]  # fmt: skip
    # So that a supervisor who ends us does not leave our children behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    site = Site(args.timeout or TIME_LIMIT)
    progress = Progress()

    def running(check: Check) -> None:
        progress.running(f"{check.id}  {check.title} ...")

    def look(site: Site) -> Look:
        return Look(site.version("torch") or "none", inventory(site) if args.bundle else None)

    try:
        limit = args.timeout or READING_LIMIT
        reading = [check for check in wanted if not check.option]
        results, found = core.run_checks_aside(site, reading, _tell, limit, running, look)
        for check in (check for check in wanted if check.option):
            running(check)
            results += core.run_checks(site, [check], _tell)
    finally:
        progress.clear()
    written = write(args, results, found or Look("unknown", None))
    if any(result.status == core.BROKEN for result in results) or not written:
        return BROKEN
    return FOUND if is_reached(results, args.fail_on) else OK


def is_reached(results: Iterable[CheckResult], level: str) -> bool:
    """Return True if there is a finding of a level or a worse one.

    Args:
        results: What came of the checks.
        level: One of `LEVELS`.
    """
    if level == NEVER:
        return False
    bar = SEVERITIES.index(level)
    return any(
        SEVERITIES.index(finding.severity) >= bar for one in results for finding in one.findings
    )


def _problem(args: Namespace) -> str:
    """Return what is wrong with the arguments, or an empty string."""
    if args.timeout is not None and not args.timeout > 0:
        return "--timeout must be greater than 0"
    return ""


def _tell(id: str, error: BaseException) -> None:
    import traceback

    note("doctor", f"{id} itself has failed:")
    told = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    say(printable_lines(told), sys.stderr)
