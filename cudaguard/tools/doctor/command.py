"""Tell what would break here, and why, before anything is run.

Reads files and metadata; imports no package. --deep imports in child processes, each
with a time limit.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import sys
import sysconfig
from glob import glob

from cudaguard.core import checks as core
from cudaguard.core.checks import FAIL, FAILED_ITSELF, SKIPPED, STATUSES, WARNING
from cudaguard.core.findings import counted
from cudaguard.elf.search_path import SearchPath
from cudaguard.files import text_in
from cudaguard.files.layout import COLOR, Page
from cudaguard.files.text import closest_id, printable_lines, same_id
from cudaguard.model import SEVERITIES, TYPE_CHECKING
from cudaguard.system.machine import kinds_of_machine
from cudaguard.system.packages import Site, documents
from cudaguard.system.preload import DRIVER
from cudaguard.system.torch_build import build_of, folder_of
from cudaguard.tools import common
from cudaguard.tools.run import launch

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from cudaguard.core.checks import Check, CheckResult

    Part = Mapping[str, Any]

_TIME_LIMIT = 120.0  # seconds for one child
READING_LIMIT = 30.0  # seconds for a check that only reads files
LEVELS = (*SEVERITIES, "never")


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--deep", action="store_true", help="import what is watched, in children, and ask NVML"
    )
    parser.add_argument(
        "--timeout", type=launch.seconds, metavar="S",
        help=f"seconds after which an import in a child (default: {_TIME_LIMIT:.0f}), or a check "
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
        "--bundle", metavar="FILE",
        help="also write a report there, with system, Python, GPUs, driver, torch and packages",
    )  # fmt: skip
    common.add_format(
        parser, "show each check, all of each note, and long lists whole", config=True
    )


def execute(args: Namespace) -> int:
    """Examine, print, and return the exit status."""
    import signal

    from cudaguard.tools.doctor.checks import CHECKS, all_checks

    args.only, args.skip = ([_check_id(id, CHECKS) for id in ids] for ids in (args.only, args.skip))
    wanted = [
        check
        for id, check in all_checks().items()
        if (id in args.only or not args.only) and id not in args.skip
        and (args.deep or not check.option or id in args.only)
    ]  # fmt: skip
    if not wanted:
        raise common.UsageError("no check is left, after --only and --skip")
    # So that a supervisor who ends us does not leave our children behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    site = Site(args.timeout or _TIME_LIMIT)
    progress = common.Progress()

    def running(check: Check) -> None:
        progress.running(f"{check.id}  {check.title} ...")

    def inspect(site: Site) -> tuple[str, dict[str, Any] | None]:
        torch = site.version("torch") or "none"
        return torch, inventory_of(site) if args.bundle else None

    try:
        limit = args.timeout or READING_LIMIT
        reading = [check for check in wanted if not check.option]
        results, found = core.run_checks_aside(site, reading, _tell, limit, running, inspect)
        for check in (check for check in wanted if check.option):
            running(check)
            results.append(core.run_check(site, check, _tell))
    finally:
        progress.clear()
    is_written = write(args, results, *(found or ("unknown", None)))
    if any(result.status == core.STATUS_BROKEN for result in results) or not is_written:
        return common.BROKEN
    found_levels = (LEVELS.index(one.severity) for each in results for one in each.findings)
    is_reached = max(found_levels, default=-1) >= LEVELS.index(args.fail_on)
    return common.FOUND if is_reached else common.OK


def _check_id(id: str, checks: Sequence[str]) -> str:
    """Return the id of a check as it is spelled, given in any case."""
    from cudaguard.tools.explain import ids

    if found := same_id(id, checks):
        return found
    other, right = same_id(id, ids()), closest_id(id, checks)
    if other:
        raise common.UsageError(f"{other} is not a check", command=f"cudaguard explain {other}")
    expected = "" if right else f"; expected one of {', '.join(checks)}"
    raise common.UsageError(f"there is no check {id!r}{expected}", wrong=id, right=right)


def _tell(id: str, error: BaseException) -> None:
    import traceback

    common.note("doctor", f"{id} itself has failed:")
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    common.say(printable_lines(text), sys.stderr)


_PIP = re.compile(r"(?:(?<=&& )|^)pip (\w+)")  # where a command begins


def command_here(command: str) -> str:
    """Return a command of a finding, by the pip of this Python."""
    pip = os.path.dirname(os.path.abspath(shutil.which("pip") or ""))
    if pip == os.path.abspath(sysconfig.get_path("scripts")):
        return command
    python = shlex.quote(sys.executable).replace("\\", r"\\")
    if not folder_of("pip") and shutil.which("uv"):  # whose environments have none
        return _PIP.sub(rf"uv pip \1 --python {python}", command)
    return _PIP.sub(rf"{python} -m pip \1", command)


# --- the report -----------------------------------------------------------------------------------

_FIRST = (core.STATUS_BROKEN, FAIL, WARNING, core.STATUS_OK, SKIPPED)
_WIDTH = max(map(len, STATUSES)) + 2
_NOTE, _WARNING, _ERROR = SEVERITIES
# Severity -> the word that stands before a finding.
_MARK = {_NOTE: "note", _WARNING: "warning", _ERROR: "error"}
# What a line begins with -> its color.
_STYLE = dict(zip((*STATUSES, "note"), ("green", "yellow", "red", "dim", "red", COLOR[_NOTE])))
_MOST = 2  # notes, and reasons of what was skipped


def write(
    args: Namespace, results: Iterable[CheckResult], torch: str, inventory: dict[str, Any] | None
) -> bool:
    """Write what was asked for; return whether that went well."""
    import cudaguard

    environment = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "interpreter": sys.executable or "unknown",
        "torch": torch,
    }
    report = document(results, environment, cudaguard.__version__)
    went_well = True
    if args.bundle:
        whole = common.shareable({**report, "inventory": inventory})
        text = bundle(whole, common.json_text(whole))
        went_well = common.save("doctor", common.name_with_host(args.bundle), text)
    text = common.laid_out(report, lay_out, sys.stdout, verbose=args.verbose)
    common.show(common.json_text(common.shareable(report)) if args.format == "json" else text)
    return went_well


def document(
    results: Iterable[CheckResult], environment: Mapping[str, str], version: str
) -> dict[str, Any]:
    """Return the report as plain data."""
    checks = [result.to_dict() for result in results]
    for check in checks:
        for finding in check["findings"]:
            finding["command"] = command_here(finding["command"])
    statuses = [check["status"] for check in checks]
    return {
        "tool": "doctor",
        "version": version,
        "environment": dict(environment),
        "checks": checks,
        "summary": {status: statuses.count(status) for status in STATUSES},
    }


def bundle(report: Part, json_text: str) -> str:
    """Return the report as Markdown, to be put into an issue."""
    text = _fenced(common.laid_out(report, lay_out, verbose=True), "text")
    data = _fenced(json_text, "json")
    return (
        f"# cudaguard doctor\n\n{text}\n\n## The report as JSON, and what is installed\n\n{data}\n"
    )


def _fenced(words: str, language: str) -> str:
    fence = "```"
    while fence in words:
        fence += "`"
    return f"{fence}{language}\n{words}\n{fence}"


def lay_out(report: Part, page: Page) -> None:
    """Write the report."""

    def line(status: str, text: str, id: str = "") -> None:
        lead = f"{status:<{_WIDTH}}{id}{'  ' * bool(id)}"
        page.add(text, lead=lead, mark=_STYLE[status], hanging=_WIDTH)

    about = (f"{name} {value}" for name, value in report["environment"].items())
    page.add(", ".join((f"cudaguard {report['version']}", *about)))
    page.blank()
    checks = sorted(report["checks"], key=lambda check: _FIRST.index(check["status"]))
    notes = []
    for check in checks:
        shown = [item for item in check["findings"] if page.verbose or item["severity"] != _NOTE]
        notes += [(check["id"], _named(item)) for item in check["findings"] if item not in shown]
        if not page.verbose and check["status"] in (core.STATUS_OK, SKIPPED):
            continue
        reason = f" ({check['reason']})" if check["reason"] else ""
        counts = _counts(shown)
        line(check["status"], f"{check['title']}{': ' * bool(counts)}{counts}{reason}", check["id"])
        for item in shown:
            mark = _MARK[item["severity"]]
            finding = {**item, "what": _named(item)}
            page.finding(finding, f"{mark}: ", 2, mark=COLOR[item["severity"]])
    some, more = page.cut(sorted(notes), _MOST)
    for id, text in some:
        line("note", text, id)
    page.add(more, _WIDTH)
    fine = sum(check["status"] == core.STATUS_OK for check in checks)
    skipped = [check for check in checks if check["status"] == SKIPPED]
    if fine and not page.verbose:
        line(core.STATUS_OK, counted(fine, "checks"))
    if skipped and not page.verbose:
        ids: dict[str, list[str]] = {}
        for check in skipped:
            ids.setdefault(check["reason"], []).append(check["id"])
        # The reason of most of them first.
        groups = sorted(ids.items(), key=lambda item: (-len(item[1]), len(item[0])))
        reasons, more = page.cut([f"{reason} ({', '.join(of)})" for reason, of in groups], _MOST)
        why = "; ".join((*reasons, *filter(None, [more])))
        line(SKIPPED, f"{counted(len(skipped), 'checks')}: {why}")
    page.blank()
    found = [finding for check in checks for finding in check["findings"]]
    faults = [
        item for severity in (_ERROR, _WARNING) for item in found if item["severity"] == severity
    ]
    summary = report["summary"]
    failed = summary[core.STATUS_BROKEN]
    made = sum(summary.values()) - failed - summary[SKIPPED]
    broken = f"; {counted(failed, 'checks')} could not be made" * bool(failed)
    style = COLOR[faults[0]["severity"]] if faults else "red" if broken else "green"
    counts = _counts(faults) or "no faults found"
    page.add(f"{counts} in {counted(made, 'checks')}{broken}", style=style)
    if any(check["reason"].startswith(FAILED_ITSELF) for check in checks):
        page.add("A broken check is a fault of cudaguard: please report it, with --bundle FILE.")
    page.labeled("run", next((item["command"] for item in faults if item["command"]), ""), 0)


def _named(finding: Part) -> str:
    rule = f" [{finding['rule']}]" if finding["rule"] else ""
    return f"{finding['what']}{rule}"


def _counts(findings: Iterable[Part]) -> str:
    """Return how many findings there are of each kind, the worst first."""
    found = [finding["severity"] for finding in findings]
    counts = ((found.count(severity), _MARK[severity]) for severity in reversed(SEVERITIES))
    return ", ".join(counted(count, f"{mark}s") for count, mark in counts if count)


# --- what is installed, for --bundle: by files, without NVML, and nothing is loaded ---------------
# Source: ``os-release(5)``, ``proc(5)``; the NVIDIA driver's README ("The /proc interface");
# PEP 427 (WHEEL); conda's ``conda-meta``.

_OS_NAME = re.compile(r'^PRETTY_NAME="?([^"\n]+)', re.MULTILINE)
_TAG = re.compile(r"^Tag:[ \t]*([^\s]+)", re.MULTILINE)
_DRIVER = re.compile(r"Kernel Module\b.{0,100}?\s(\d+\.\d+(?:\.\d+)?)\s")


def inventory_of(site: Site) -> dict[str, Any]:
    """Return what an issue report has to say of an environment."""
    packages = {
        dist.name: f"{dist.version} {_found(_TAG, text_in(dist.metadata, 'WHEEL'))}".rstrip()
        for dist in sorted(site.installed.found, key=lambda dist: dist.key)
    }
    packages.update((os.path.basename(path), "unreadable") for path, _ in site.installed.unreadable)
    return {
        "system": _system(),
        "python": _python(),
        "gpu": gpus_by_files(),
        "torch": _torch(site.version("torch") or ""),
        "variables": common.variables(site.environ),
        "packages": packages,
        "conda": {name: f"{version} {build}" for name, version, build, _ in documents(sys.prefix)},
    }


def _system() -> dict[str, str]:
    """Return what is below Python."""
    release = platform.uname()
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, OSError, ValueError):  # musl
        libc = " ".join(platform.libc_ver()).strip()
    return {
        "os": _found(_OS_NAME, text_in("/etc/os-release")) or release.system,
        "kernel": release.release,
        "machine": release.machine,
        "libc": libc,
        "kind": ", ".join(kinds_of_machine()),
    }


def _python() -> dict[str, str]:
    """Return what interpreter this is."""
    kind = "venv" if sys.prefix != sys.base_prefix else "system"
    if os.path.isdir(os.path.join(sys.prefix, "conda-meta")):
        kind = "conda"
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "threads": "GIL" if getattr(sys, "_is_gil_enabled", lambda: True)() else "free-threaded",
        "kind": kind,
        "prefix": sys.prefix,
    }


def gpus_by_files(root: str = "/") -> dict[str, str | list[str]]:
    """Return the driver, the libcuda that the loader would find, and the GPUs."""
    library = SearchPath().find(DRIVER)
    version = os.path.basename(os.path.realpath(library)).partition(".so.")[2] if library else ""
    files = sorted(glob(os.path.join(root, "proc/driver/nvidia/gpus/*/information")))
    lines = "\n".join(map(text_in, files)).splitlines()
    return {
        "driver": _found(_DRIVER, text_in(root, "proc/driver/nvidia/version")),
        "library": library,
        "library_version": version,
        "models": [line.partition(":")[2].strip() for line in lines if "Model:" in line[:6]],
    }


def _torch(version: str) -> dict[str, str]:
    """Return how torch was built, by its own file; nothing where there is none."""
    folder = folder_of("torch")
    if not version and not folder:
        return {}
    build = build_of(folder)
    build.pop("__version__", "")
    return {"version": version, "folder": folder, **build}


def _found(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""
