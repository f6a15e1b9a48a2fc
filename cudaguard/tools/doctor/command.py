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
    note,
    say,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Sequence
    from typing import Any

    from cudaguard.core.checks import Check, CheckResult
    from cudaguard.system.packages import Site

TIME_LIMIT = 120.0  # seconds for one child
READING_LIMIT = 30.0  # seconds for a check that only reads files
LEVELS = (*SEVERITIES, "never")

EXAMPLES = """\
examples:
  cudaguard doctor                             what would break here?
  cudaguard doctor --deep                      also import what is watched, in children
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
    from cudaguard.system.packages import Site
    from cudaguard.tools.doctor import inventory
    from cudaguard.tools.doctor.checks import CHECKS, all_checks
    from cudaguard.tools.doctor.writing import write

    if args.diff:
        return inventory.execute(args)
    args.only, args.skip = ([_check_id(id, CHECKS) for id in ids] for ids in (args.only, args.skip))
    if args.timeout is not None and not args.timeout > 0:
        raise UsageError("--timeout must be greater than 0")
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

    def look(site: Site) -> tuple[str, dict[str, Any] | None]:
        torch = site.version("torch") or "none"
        return torch, inventory.inventory(site) if args.bundle else None

    try:
        limit = args.timeout or READING_LIMIT
        reading = [check for check in wanted if not check.option]
        results, found = core.run_checks_aside(site, reading, _tell, limit, running, look)
        for check in (check for check in wanted if check.option):
            running(check)
            results.append(core.run_check(site, check, _tell))
    finally:
        progress.clear()
    is_written = write(args, results, *(found or ("unknown", None)))
    if any(result.status == core.BROKEN for result in results) or not is_written:
        return BROKEN
    return FOUND if is_reached(results, args.fail_on) else OK


def _check_id(id: str, checks: Sequence[str]) -> str:
    """Return the id of a check as it is spelled, given in any case."""
    from cudaguard.core.patterns import closest_id, same_id
    from cudaguard.tools.known import ids

    found = same_id(id, checks)
    if found:
        return found
    other, right = same_id(id, ids()), closest_id(id, checks)
    if other:
        raise UsageError(f"{other} is not a check", command=f"cudaguard explain {other}")
    expected = "" if right else f"; expected one of {', '.join(checks)}"
    raise UsageError(f"there is no check {id!r}{expected}", wrong=id, right=right)


def is_reached(results: Iterable[CheckResult], level: str) -> bool:
    """Return True if there is a finding of a level of `LEVELS`, or a worse one."""
    found = (LEVELS.index(finding.severity) for one in results for finding in one.findings)
    return max(found, default=-1) >= LEVELS.index(level)


def _tell(id: str, error: BaseException) -> None:
    import traceback

    note("doctor", f"{id} itself has failed:")
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    say(printable_lines(text), sys.stderr)
