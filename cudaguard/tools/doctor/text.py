"""The report of `cudaguard doctor` for a reader: faults first, the verdict and a command last."""

from __future__ import annotations

from cudaguard.core.checks import BROKEN, FAIL, FAILED_ITSELF, OK, SKIPPED, STATUSES, WARNING
from cudaguard.model import SEVERITIES
from cudaguard.tools.layout import COLOR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from cudaguard.tools.layout import Page

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


def write(report: Part, page: Page) -> None:
    """Write the report.

    Args:
        report: As `cudaguard.tools.doctor.writing.document` returns it.
        page: Where to; a verbose one gets each check, and all that is known of each note.
    """
    page.add(head(report))
    page.blank()
    checks = sorted(report["checks"], key=lambda check: _FIRST.index(check["status"]))
    for check in checks:
        if page.verbose or check["status"] not in (OK, SKIPPED):
            _check(check, page)
    if not page.verbose:
        _notes(checks, page)
        _fine([check for check in checks if check["status"] == OK], page)
        _skipped([check for check in checks if check["status"] == SKIPPED], page)
    page.blank()
    _verdict(report["summary"], checks, page)


def head(report: Part) -> str:
    """Return what was looked at."""
    return ", ".join(
        (f"cudaguard {report['version']}", *(f"{k} {v}" for k, v in report["environment"].items()))
    )


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


def _fine(checks: Sequence[Part], page: Page) -> None:
    if checks:
        _line(OK, "", _number(len(checks), "check"), page)


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
