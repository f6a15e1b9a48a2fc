"""Report what would break here, and why, before anything is run.

Reads files and metadata; imports no package. --deep and --orders import in child processes, each
with a time limit.
"""

from __future__ import annotations

import os
import sys

from cudaguard.files import write_text
from cudaguard.files.text import printable_data, printable_lines
from cudaguard.model import SEVERITIES
from cudaguard.tools import sarif
from cudaguard.tools.common import (
    BROKEN,
    FOUND,
    OK,
    Progress,
    UsageError,
    add_format,
    github,
    json_text,
    known_id,
    note,
    paint,
    say,
    show,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterable
    from typing import Any

    from cudaguard.core.checks import Check, CheckResult
    from cudaguard.system.site import Site

TIME_LIMIT = 120.0  # seconds for one child
READING_LIMIT = 30.0  # seconds for a check that only reads files
NEVER = "never"
LEVELS = (*SEVERITIES, NEVER)
ANNOTATIONS = dict(zip(SEVERITIES, ("notice", "warning", "error")))

EXAMPLES = """\
examples:
  cudaguard doctor                             what would break here?
  cudaguard doctor --deep                      also import what is watched, in children
  cudaguard doctor --orders decord,torch,cv2   do these imports work, in every order?
  cudaguard doctor --python ~/train/.venv      look at another environment
  cudaguard doctor --explain CG902             what is that check about?
  cudaguard doctor --format github --fail-on warning
                                               in a workflow
  cudaguard doctor --bundle report.md          a report for an issue, without names and secrets

exit status: 0 nothing at or above --fail-on, 1 found, 2 wrong usage, 3 a check itself failed
"""


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    import argparse

    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--deep", action="store_true", help="import what is watched, in children, and ask NVML"
    )
    parser.add_argument(
        "--orders", metavar="A,B,C", help="import these in different orders, in children"
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
    parser.add_argument("--explain", metavar="ID", help="say what a check is about, and end")
    parser.add_argument("--bundle", metavar="FILE", help="also write a report for an issue there")
    parser.add_argument(
        "--no-redact", dest="redact", action="store_false",
        help="leave names, home folders and secrets in JSON, annotations and the bundle",
    )  # fmt: skip
    parser.add_argument("-v", "--verbose", action="store_true", help="tell all of each note")
    add_format(parser)


def execute(args: Namespace) -> int:
    """Examine, print, and return the exit status."""
    import signal

    from cudaguard.core import checks as core
    from cudaguard.system import lending
    from cudaguard.system.site import Site
    from cudaguard.tools.doctor.catalog import CHECKS, all_checks, check_of
    from cudaguard.tools.doctor.other_python import enter

    args.only, args.skip, explained = (
        [known_id(id, CHECKS, "check") for id in ids if id]
        for ids in (args.only, args.skip, [args.explain])
    )
    problem = _problem(args)
    if problem:
        raise UsageError(problem)
    if args.python and not lending.host:
        try:
            enter(args.python, args.given)
        except ValueError as error:
            raise UsageError(str(error)) from error
    if args.explain:
        check = check_of(explained[0])
        when = f"\nrun with {check.option}" if check.option else ""
        show(f"{check.id}: {check.title}\n{check.about}{when}")
        return OK
    orders = [name.strip() for name in args.orders.split(",")] if args.orders else []
    given = {"": True, "--deep": args.deep, "--orders": bool(orders)}
    wanted = [
        check
        for id, check in all_checks().items()
        if (id in args.only or not args.only) and id not in args.skip
        and (given[check.option] or id in args.only)
    ]  # fmt: skip
    # So that a supervisor who ends us does not leave our children behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    site = Site(orders, args.timeout or TIME_LIMIT)
    progress = Progress()

    def running(check: Check) -> None:
        progress.running(f"{check.id}  {check.title} ...")

    try:
        limit = args.timeout or READING_LIMIT
        reading = [check for check in wanted if not check.option]
        results, packages = core.run_checks_aside(site, reading, _tell, limit, running)
        for check in (check for check in wanted if check.option):
            running(check)
            results += core.run_checks(site, [check], _tell)
    finally:
        progress.clear()
    written = _write(args, _report(results, packages), site, packages)
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
    if args.orders is not None and not all(
        part.isidentifier() for name in args.orders.split(",") for part in name.strip().split(".")
    ):
        return f"--orders: got {args.orders!r}, expected module names, as in decord,torch,cv2"
    if args.timeout is not None and not args.timeout > 0:
        return "--timeout must be greater than 0"
    return ""


def _tell(id: str, error: BaseException) -> None:
    import traceback

    note("doctor", f"{id} itself has failed:")
    told = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    say(printable_lines(told), sys.stderr)


def _report(results: list[CheckResult], packages: dict[str, str] | None) -> dict[str, Any]:
    import platform

    import cudaguard
    from cudaguard.tools.doctor.document import document
    from cudaguard.tools.doctor.other_python import command_here

    environment = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "interpreter": sys.executable or "unknown",
    }
    environment["torch"] = "unknown" if packages is None else packages.get("torch", "none")
    report = document(results, environment, cudaguard.__version__)
    for check in report["checks"]:
        for finding in check["findings"]:
            finding["command"] = command_here(finding["command"])
    return report


def _write(
    args: Namespace, report: dict[str, Any], site: Site, packages: dict[str, str] | None
) -> bool:
    """Write what was asked for; return whether that went well."""
    from cudaguard.system.redact import redacted
    from cudaguard.tools.doctor import document

    redact = _redactor(site) if args.redact else None
    data = redacted(report, redact) if redact else report
    if args.format == "json":
        shown = json_text(data)
    elif args.format == sarif.FORMAT:
        shown = sarif.of_doctor(data)
    elif args.format == "github":
        shown = "\n".join(_annotations(data))  # logs of workflows are public
    else:

        def painted(words: str, style: str) -> str:
            return paint(words, style, sys.stdout)

        shown = document.text(printable_data(report), painted, verbose=args.verbose)
    went_well = True
    if args.bundle:
        environ = {name: site.environ[name] for name in sorted(site.environ) if _matters(name)}
        parts = printable_data((report, environ, packages or {}))
        content = document.bundle(*parts, json_text(data))
        went_well = _save(args.bundle, redact(content) if redact else content)
    if shown:
        show(shown)
    return went_well


def _annotations(report: dict[str, Any]) -> list[str]:
    """Return a workflow command for each finding, and for each check that has failed."""
    from cudaguard.core.checks import BROKEN

    lines = []
    for check in report["checks"]:
        title = f"{check['id']}: {check['title']}"
        if check["status"] == BROKEN:
            lines.append(github("error", check["reason"], title=title))
        for finding in check["findings"]:
            parts = (finding[key] for key in ("what", "consequence", "remedy", "command"))
            told = [finding["what"], *finding["evidence"], *list(parts)[1:]]
            message = "\n".join(filter(None, told))
            lines.append(github(ANNOTATIONS[finding["severity"]], message, title=title))
    return lines


_MATTERS = ("CUDA", "NVIDIA", "TORCH", "PYTORCH", "TRITON", "LD_", "PYTHON", "CONDA", "VIRTUAL_ENV",
            "NCCL", "OMP_", "KMP_", "MAX_JOBS", "CC", "CXX", "PATH", "XLA_", "TF_")  # fmt: skip


def _matters(name: str) -> bool:
    return name.startswith(_MATTERS)


def _redactor(site: Site) -> Callable[[str], str]:
    import platform

    from cudaguard.system.redact import redactor

    homes = [os.path.expanduser("~")]
    try:  # HOME may be set to another folder, as in containers and jobs
        import pwd

        homes.append(pwd.getpwuid(os.getuid()).pw_dir)
    except (ImportError, KeyError):  # not POSIX, or a user id without a name
        pass
    return redactor(site.environ, (*homes, *map(os.path.realpath, homes)), platform.node())


def _save(path: str, content: str) -> bool:
    try:
        write_text(path, content)
    except OSError as error:
        note("doctor", f"{path} cannot be written: {error}")
        return False
    return True
