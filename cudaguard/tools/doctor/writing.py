"""Writes what doctor has found: as text, as data, and as a bundle for an issue.

The text has faults first, the verdict and a command last.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from cudaguard.core.checks import BROKEN, FAIL, FAILED_ITSELF, OK, SKIPPED, STATUSES, WARNING
from cudaguard.files.text import printable_data
from cudaguard.model import SEVERITIES
from cudaguard.system.shareable import shareable
from cudaguard.tools.common import json_text, named, save, show
from cudaguard.tools.doctor.other_python import command_here
from cudaguard.tools.layout import COLOR, Page

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from cudaguard.core.checks import CheckResult

    Part = Mapping[str, Any]

_FIRST = (BROKEN, FAIL, WARNING, OK, SKIPPED)
_WIDTH = max(map(len, STATUSES)) + 2
_NOTE, *_FAULTS = SEVERITIES
# Severity -> the word that stands before a finding.
_MARK = dict(zip(SEVERITIES, ("note", "warning", "error")))
# What a line begins with -> its color.
_STYLE: dict[str, str] = dict(zip(STATUSES, ("green", "yellow", "red", "dim", "red")))
_STYLE.update({"": "", _MARK[_NOTE]: COLOR[_NOTE]})
_MOST = 2  # notes, and reasons of what was skipped
_INDENT = 2
_BROKEN = "A broken check is a fault of cudaguard: please report it, with --bundle FILE."


class Look(NamedTuple):
    """What is told of an environment besides the checks.

    Args:
        torch: Its version, ``none`` or ``unknown``.
        inventory: For a bundle, what is installed; None if that cannot be read.
    """

    torch: str
    inventory: dict[str, Any] | None


def write(args: Namespace, results: Iterable[CheckResult], look: Look) -> bool:
    """Write what was asked for; return whether that went well.

    Args:
        args: The command line.
        results: What came of the checks.
        look: What else is told.
    """
    import platform

    import cudaguard

    environment = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "interpreter": sys.executable or "unknown",
        "torch": look.torch,
    }
    report = document(results, environment, cudaguard.__version__)
    went_well = True
    if args.bundle:
        whole = shareable({**report, "inventory": look.inventory})
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
    told = [result.to_dict() for result in results]
    for check in told:
        for finding in check["findings"]:
            finding["command"] = command_here(finding["command"])
    found = [check["status"] for check in told]
    return {
        "tool": "doctor",
        "version": version,
        "environment": dict(environment),
        "checks": told,
        "summary": {status: found.count(status) for status in STATUSES},
    }


def bundle(report: Mapping[str, Any], json_text: str) -> str:
    """Return the report as Markdown, to be put into an issue.

    Args:
        report: As `document` returns it.
        json_text: The report with the inventory, as JSON.
    """
    page = Page(verbose=True)
    lay_out(report, page)
    parts = [
        "# cudaguard doctor",
        _fenced(str(page)),
        "## The report as JSON, and what is installed",
        _fenced(json_text, "json"),
    ]
    return "\n\n".join(parts) + "\n"


def _fenced(words: str, language: str = "text") -> str:
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
    about = (f"{name} {value}" for name, value in report["environment"].items())
    page.add(", ".join((f"cudaguard {report['version']}", *about)))
    page.blank()
    checks = sorted(report["checks"], key=lambda check: _FIRST.index(check["status"]))
    for check in checks:
        if page.verbose or check["status"] not in (OK, SKIPPED):
            _check(check, page)
    if not page.verbose:
        _notes(checks, page)
        fine = sum(check["status"] == OK for check in checks)
        _line(OK, "", _number(fine, "check"), page) if fine else None
        _skipped([check for check in checks if check["status"] == SKIPPED], page)
    page.blank()
    _verdict(report["summary"], checks, page)


def _check(check: Part, page: Page) -> None:
    reason = f" ({check['reason']})" if check["reason"] else ""
    severities = [one["severity"] for one in check["findings"]]
    told = _counted(one for one in severities if page.verbose or one != _NOTE)
    text = f"{check['title']}{': ' * bool(told)}{told}{reason}"
    _line(check["status"], f"{check['id']}  ", text, page)
    for finding in check["findings"]:
        if page.verbose or finding["severity"] != _NOTE:
            severity, named = finding["severity"], {**finding, "what": _named(finding)}
            page.finding(named, f"{_MARK[severity]}: ", _INDENT, mark=COLOR[severity])


def _line(status: str, lead: str, text: str, page: Page) -> None:
    """Add a line that begins with a status."""
    page.add(text, lead=f"{status:<{_WIDTH}}{lead}", mark=_STYLE[status], hanging=_WIDTH)


def _named(finding: Part) -> str:
    rule = f" [{finding['rule']}]" if finding["rule"] else ""
    return f"{finding['what']}{rule}"


def _counted(severities: Iterable[str]) -> str:
    """Return how many findings there are of each kind, the worst first."""
    found = list(severities)
    counts = ((found.count(severity), _MARK[severity]) for severity in reversed(SEVERITIES))
    return ", ".join(_number(count, mark) for count, mark in counts if count)


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _notes(checks: Iterable[Part], page: Page) -> None:
    """Add the notes, a line each: one of each check before the second of any."""
    ranked = sorted(_ranked(checks), key=lambda item: item[0])
    shown, more = page.cut(ranked, _MOST)
    for _, id, text in shown:
        _line(_MARK[_NOTE], f"{id}  ", text, page)
    _line("", "", more, page) if more else None


def _ranked(checks: Iterable[Part]) -> Iterator[tuple[int, str, str]]:
    for check in sorted(checks, key=lambda check: str(check["id"])):
        notes = [one for one in check["findings"] if one["severity"] == _NOTE]
        yield from ((rank, check["id"], _named(note)) for rank, note in enumerate(notes))


def _skipped(checks: Sequence[Part], page: Page) -> None:
    """Add one line for all, the reason of most of them first."""
    if not checks:
        return
    ids: dict[str, list[str]] = {}
    for check in checks:
        ids.setdefault(check["reason"], []).append(check["id"])
    groups = sorted(ids.items(), key=lambda item: (-len(item[1]), len(item[0])))
    shown, more = page.cut([f"{reason} ({', '.join(of)})" for reason, of in groups], _MOST)
    text = "; ".join((*shown, *filter(None, [more])))
    _line(SKIPPED, "", f"{_number(len(checks), 'check')}: {text}", page)


def _verdict(summary: Mapping[str, int], checks: Sequence[Part], page: Page) -> None:
    findings = [finding for check in checks for finding in check["findings"]]
    faults = [one for one in findings if one["severity"] in _FAULTS]
    made = sum(summary.values()) - summary[BROKEN] - summary[SKIPPED]
    broken = f"; {_number(summary[BROKEN], 'check')} could not be made" * bool(summary[BROKEN])
    told = _counted(one["severity"] for one in faults) or "no faults found"
    worst = max((SEVERITIES.index(one["severity"]) for one in faults), default=0)
    style = COLOR[SEVERITIES[worst]] if worst else "red" if summary[BROKEN] else "green"
    page.add(f"{told} in {_number(made, 'check')}{broken}", style=style)
    if any(check["reason"].startswith(FAILED_ITSELF) for check in checks):
        page.add(_BROKEN)
    faults.sort(key=lambda one: -SEVERITIES.index(one["severity"]))
    command = next((one["command"] for one in faults if one["command"]), "")
    if command:
        page.labeled("run", command, 0)
