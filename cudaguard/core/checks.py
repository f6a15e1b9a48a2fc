"""The protocol of doctor's checks: what one declares, how it is run, and what comes of it.

A check is one object: its id, a noun for a title, the option that it needs, and a function. Limits,
statuses and order are seen to here, the same for all.
"""

from __future__ import annotations

from functools import partial
from time import monotonic

from cudaguard.model import SEVERITIES, TYPE_CHECKING, NamedTuple, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, Literal, TypeVar

    from cudaguard.core.findings import Finding, Kind
    from cudaguard.system.packages import Site

    T = TypeVar("T")
    Result = tuple[list[Finding], str]  # what was found, and in a few words what was looked at
    CheckStatus = Literal["ok", "warning", "fail", "skipped", "broken"]

_MOST = 100  # findings of one check: a file that was made for it can cause any number
FAILED_ITSELF = "the check itself failed"  # begins the reason of what is our own fault
STATUSES: tuple[CheckStatus, ...] = ("ok", "warning", "fail", "skipped", "broken")
STATUS_OK, WARNING, FAIL, SKIPPED, STATUS_BROKEN = STATUSES
_STATUS_OF = dict(zip(SEVERITIES, (STATUS_OK, WARNING, FAIL)))


class Skipped(Exception):  # noqa: N818  # not an error
    """Raised by a check that has nothing to look at; the text says why."""


class CheckResult(Record):
    """Result of one check of ``cudaguard doctor``."""

    id: str  # its id
    title: str  # what it looks at, as a noun
    status: CheckStatus  # ``broken`` where the check itself failed
    reason: str = ""  # why it was skipped, or how it failed; otherwise what was looked at
    seconds: float = 0.0  # how long it took
    findings: tuple[Finding, ...] = ()  # what it has found


class Check(NamedTuple):
    """A check, as its file declares it."""

    kind: Kind  # of what it finds; the title says what it looks at, as a noun: the verdict follows
    about: str  # what goes wrong, and what is read to know
    # Raises `Skipped` where there is nothing to look at
    run: Callable[[Site], Result]
    # The option without which it is not run; empty for one that only reads files
    option: Literal["", "--deep"] = ""

    @property
    def id(self) -> str:
        """Its id, and that of what it finds."""
        return self.kind.id

    @property
    def title(self) -> str:
        """Subject of the check, a noun."""
        return self.kind.title


def run_check(site: Site, check: Check, tell: Callable[[str, BaseException], None]) -> CheckResult:
    """Return what comes of a check; one that fails does not stop the others.

    `tell` gets the error of a check that has failed itself.
    """
    started = monotonic()

    def ended(status: CheckStatus, reason: str, findings: Iterable[Finding] = ()) -> CheckResult:
        seconds = round(monotonic() - started, 3)
        return CheckResult(check.id, check.title, status, reason, seconds, tuple(findings))

    try:
        findings, seen = check.run(site)
    except Skipped as why:
        return ended(SKIPPED, str(why))
    except Exception as error:  # the others still have something to say
        tell(check.id, error)
        return ended(STATUS_BROKEN, f"{FAILED_ITSELF}: {type(error).__name__}: {error}")
    if len(findings) > _MOST:
        seen = f"{seen}; the first {_MOST} of {len(findings):,} findings"
    return ended(status_of(findings), seen, findings[:_MOST])


def run_checks_aside(
    site: Site,
    checks: Sequence[Check],
    # is told, there, of a check that has failed itself, with the error
    tell: Callable[[str, BaseException], None],
    limit: float,  # seconds for one check
    running: Callable[[Check], None],  # is told which check goes on
    also: Callable[[Site], T],  # is called with the environment, after the checks
) -> tuple[list[CheckResult], T | None]:
    """Run checks in a process of their own: one that waits for a dead disk is given up.

    Return what comes of them, and what `also` returned; None if it has failed or taken too long.
    """
    from cudaguard.system.child import NoAnswer, run_in_fork

    tasks: list[Callable[[], Any]] = [partial(run_check, site, check, tell) for check in checks]
    answers = run_in_fork([*tasks, partial(also, site)], limit)
    results = []
    for check in checks:
        running(check)
        answer = next(answers)
        if isinstance(answer, NoAnswer):
            reason = answer.why + "; --timeout S gives it more" * answer.is_late
            answer = CheckResult(
                check.id, check.title, STATUS_BROKEN, reason, round(answer.seconds, 3)
            )
        results.append(answer)
    last = next(answers)
    return results, None if isinstance(last, NoAnswer) else last


def status_of(findings: Iterable[Finding]) -> CheckStatus:
    """Return the status of a check that has come to its end: that of the worst finding."""
    worst = max((SEVERITIES.index(finding.severity) for finding in findings), default=0)
    return _STATUS_OF[SEVERITIES[worst]]
