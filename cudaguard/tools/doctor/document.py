"""The report of `cudaguard doctor`: as data, as text, and to be put into an issue."""

from __future__ import annotations

from cudaguard.core.checks import FAILED_ITSELF, STATUSES
from cudaguard.model import SEVERITIES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from cudaguard.core.checks import CheckResult

STYLE = dict(zip(STATUSES, ("green", "yellow", "red", "dim", "red")))
_WIDTH = max(map(len, STATUSES))
_MARGIN = " " * (_WIDTH + 2)
# Severity -> the word that stands before a finding.
_MARK = dict(zip(SEVERITIES, ("note", "warning", "error")))
_COLOR = dict(zip(SEVERITIES, ("blue", "yellow", "red")))


def document(
    results: Iterable[CheckResult],
    environment: Mapping[str, str],
    version: str,
    inventory: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the report as plain data.

    Args:
        results: What came of the checks.
        environment: What of it is worth knowing: ``python``, ``platform``, ``torch`` ...
        version: Of cudaguard.
        inventory: What is installed here, None if that was not asked for or cannot be read.
    """
    told = [result.to_dict() for result in results]
    found = [check["status"] for check in told]
    return {
        "tool": "doctor",
        "version": version,
        "environment": dict(environment),
        "checks": told,
        "summary": {status: found.count(status) for status in STATUSES},
        "inventory": inventory,
    }


def text(
    report: Mapping[str, Any], paint: Callable[[str, str], str], *, verbose: bool = False
) -> str:
    """Return the report for a terminal.

    Args:
        report: As `document` returns it.
        paint: Returns a text in a style.
        verbose: With all that is known of what is worth a note only.
    """
    lines = [_head(report), ""]
    for check in report["checks"]:
        status = check["status"]
        reason = f" ({check['reason']})" if check["reason"] else ""
        mark = paint(f"{status:<{_WIDTH}}", STYLE[status])
        lines.append(f"{mark}  {check['id']}  {check['title']}{_verdict(check)}{reason}")
        for finding in check["findings"]:
            lines += _finding(finding, paint, verbose=verbose)
    summary = report["summary"]
    counted = ", ".join(f"{summary[status]} {status}" for status in STATUSES if summary[status])
    lines += ["", f"{_counted(sum(summary.values()))}: {counted}"]
    if any(check["reason"].startswith(FAILED_ITSELF) for check in report["checks"]):
        lines.append("what is broken here is cudaguard: please report it, with --bundle FILE")
    return "\n".join(lines)


def inventory(report: Mapping[str, Any], *, verbose: bool = False) -> str:
    """Return what is installed, for a terminal; the arguments are those of `text`."""
    from cudaguard.tools.doctor.inventory.text import text as told

    found = report["inventory"]
    return f"{_head(report)}\n\n{told(found, verbose=verbose) if found else 'unknown'}"


def _head(report: Mapping[str, Any]) -> str:
    head = f"cudaguard {report['version']}"
    return ", ".join((head, *(f"{k} {v}" for k, v in report["environment"].items())))


def _verdict(check: Mapping[str, Any]) -> str:
    """Return what follows a title: how many findings there are of each kind."""
    severities = [finding["severity"] for finding in check["findings"]]
    counts = ((severities.count(severity), _MARK[severity]) for severity in reversed(SEVERITIES))
    told = ", ".join(f"{count} {mark}{'s' * (count != 1)}" for count, mark in counts if count)
    return f": {told}" if told else ""


def _counted(checks: int) -> str:
    return f"{checks} check{'s' * (checks != 1)}"


def _finding(
    finding: Mapping[str, Any], paint: Callable[[str, str], str], *, verbose: bool
) -> list[str]:
    severity = finding["severity"]
    rule = f" [{finding['rule']}]" if finding["rule"] else ""
    lines = [f"{_MARGIN}{_marked(severity, paint)}: {finding['what']}{rule}"]
    if severity == "info" and not verbose:
        return lines
    rest = [
        *(("evidence", item) for item in finding["evidence"]),
        ("consequence", finding["consequence"]),
        ("remedy", finding["remedy"]),
        ("run", finding["command"]),
        ("see", finding["links"][0] if finding["links"] else ""),
    ]
    return [*lines, *(f"{_MARGIN}    {word}: {t}" for word, t in rest if t)]


def _marked(severity: str, paint: Callable[[str, str], str]) -> str:
    return paint(_MARK[severity], _COLOR[severity])


def bundle(report: Mapping[str, Any], json_text: str) -> str:
    """Return the report as Markdown, to be put into an issue.

    Args:
        report: As `document` returns it.
        json_text: The report as JSON.
    """
    plain = text(report, lambda words, _: words, verbose=True)
    parts = [
        "# cudaguard doctor",
        _fenced(plain),
        "## Inventory",
        _fenced(inventory(report, verbose=True)),
        "## The report as JSON",
        _fenced(json_text, "json"),
    ]
    return "\n\n".join(parts) + "\n"


def _fenced(words: str, language: str = "text") -> str:
    fence = "```"
    while fence in words:
        fence += "`"
    return f"{fence}{language}\n{words}\n{fence}"
