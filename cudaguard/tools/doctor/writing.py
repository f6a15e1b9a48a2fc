"""Writes what doctor has found: as text, as data, and as a bundle for an issue.

The text has faults first, the verdict and a command last.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import sys
import sysconfig

from cudaguard.core.checks import BROKEN, FAIL, FAILED_ITSELF, OK, SKIPPED, STATUSES, WARNING
from cudaguard.core.findings import counted
from cudaguard.files.text import printable_data
from cudaguard.model import SEVERITIES
from cudaguard.system.shareable import shareable
from cudaguard.system.torch_build import folder_of
from cudaguard.tools.common import json_text, named, save, show
from cudaguard.tools.layout import COLOR, Page

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Mapping
    from typing import Any

    from cudaguard.core.checks import CheckResult

    Part = Mapping[str, Any]


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

_FIRST = (BROKEN, FAIL, WARNING, OK, SKIPPED)
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
    """Write what was asked for; return whether that went well.

    Args:
        args: The command line.
        results: What came of the checks.
        torch: Its version, ``none`` or ``unknown``.
        inventory: For a bundle, what is installed; None if that cannot be read.
    """
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
        whole = shareable({**report, "inventory": inventory})
        text = bundle(printable_data(whole), json_text(whole))
        went_well = save("doctor", named(args.bundle), text)
    if args.format == "json":
        show(json_text(shareable(report)))
    else:
        page = Page(sys.stdout, verbose=args.verbose)
        lay_out(printable_data(report), page)
        show(str(page))
    return went_well


def document(
    results: Iterable[CheckResult], environment: Mapping[str, str], version: str
) -> dict[str, Any]:
    """Return the report as plain data.

    Args:
        results: What came of the checks.
        environment: What of it is worth knowing: ``python``, ``platform``, ``torch`` ...
        version: Of cudaguard.
    """
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
    """Return the report as Markdown, to be put into an issue.

    Args:
        report: As `document` returns it.
        json_text: The report with the inventory, as JSON.
    """
    page = Page(verbose=True)
    lay_out(report, page)
    text = _fenced(str(page), "text")
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
    """Write the report.

    Args:
        report: As `document` returns it.
        page: Where to; a verbose one gets each check, and all that is known of each note.
    """

    def line(status: str, text: str, id: str = "") -> None:
        lead = f"{status:<{_WIDTH}}{id}{'  ' * bool(id)}"
        page.add(text, lead=lead, mark=_STYLE[status], hanging=_WIDTH)

    about = (f"{name} {value}" for name, value in report["environment"].items())
    page.add(", ".join((f"cudaguard {report['version']}", *about)))
    page.blank()
    checks = sorted(report["checks"], key=lambda check: _FIRST.index(check["status"]))
    notes = []
    for check in checks:
        shown = [one for one in check["findings"] if page.verbose or one["severity"] != _NOTE]
        notes += [(check["id"], _named(one)) for one in check["findings"] if one not in shown]
        if not page.verbose and check["status"] in (OK, SKIPPED):
            continue
        reason = f" ({check['reason']})" if check["reason"] else ""
        counts = _counts(shown)
        line(check["status"], f"{check['title']}{': ' * bool(counts)}{counts}{reason}", check["id"])
        for one in shown:
            mark = _MARK[one["severity"]]
            finding = {**one, "what": _named(one)}
            page.finding(finding, f"{mark}: ", 2, mark=COLOR[one["severity"]])
    some, more = page.cut(sorted(notes), _MOST)
    for id, text in some:
        line("note", text, id)
    page.add(more, _WIDTH)
    fine = sum(check["status"] == OK for check in checks)
    skipped = [check for check in checks if check["status"] == SKIPPED]
    if fine and not page.verbose:
        line(OK, counted(fine, "checks"))
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
        one for severity in (_ERROR, _WARNING) for one in found if one["severity"] == severity
    ]
    summary = report["summary"]
    made = sum(summary.values()) - summary[BROKEN] - summary[SKIPPED]
    broken = f"; {counted(summary[BROKEN], 'checks')} could not be made" * bool(summary[BROKEN])
    style = COLOR[faults[0]["severity"]] if faults else "red" if broken else "green"
    counts = _counts(faults) or "no faults found"
    page.add(f"{counts} in {counted(made, 'checks')}{broken}", style=style)
    if any(check["reason"].startswith(FAILED_ITSELF) for check in checks):
        page.add("A broken check is a fault of cudaguard: please report it, with --bundle FILE.")
    page.labeled("run", next((one["command"] for one in faults if one["command"]), ""), 0)


def _named(finding: Part) -> str:
    rule = f" [{finding['rule']}]" if finding["rule"] else ""
    return f"{finding['what']}{rule}"


def _counts(findings: Iterable[Part]) -> str:
    """Return how many findings there are of each kind, the worst first."""
    found = [one["severity"] for one in findings]
    counts = ((found.count(severity), _MARK[severity]) for severity in reversed(SEVERITIES))
    return ", ".join(counted(count, f"{mark}s") for count, mark in counts if count)
