"""What follows from findings: the status of a check, and of the command."""

from __future__ import annotations

from cudaguard.core.checks import BROKEN, FAIL, OK, WARN
from cudaguard.model import SEVERITIES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudaguard.core.checks import Check
    from cudaguard.model import Finding

NEVER = "never"
LEVELS = (*SEVERITIES, NEVER)
_STATUS = {"info": OK, "warning": WARN, "error": FAIL}


def status_of(findings: Iterable[Finding]) -> str:
    """Return the status of a check that has come to its end: that of the worst finding."""
    worst = max((SEVERITIES.index(finding.severity) for finding in findings), default=0)
    return _STATUS[SEVERITIES[worst]]


def is_broken(checks: Iterable[Check]) -> bool:
    """Has a check itself failed?"""
    return any(check.status == BROKEN for check in checks)


def is_reached(checks: Iterable[Check], level: str) -> bool:
    """Is there a finding of a level or a worse one?

    Args:
        checks: What came of them.
        level: One of `LEVELS`.
    """
    if level == NEVER:
        return False
    bar = SEVERITIES.index(level)
    return any(
        SEVERITIES.index(finding.severity) >= bar for check in checks for finding in check.findings
    )
