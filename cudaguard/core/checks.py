"""The vocabulary of the doctor: what a check is about, and what came of it."""

from __future__ import annotations

from typing import NamedTuple

from cudaguard.model import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudaguard.model import Finding

FAILED_ITSELF = "the check itself failed"  # begins the reason of what is our own fault
OK, WARN, FAIL, SKIPPED, BROKEN = STATUSES = ("ok", "warn", "fail", "skipped", "broken")


class Check(Record):
    """What came of one check.

    Args:
        id: Its id.
        title: What is true where it is ``ok``.
        status: ``ok``, ``warn``, ``fail``, ``skipped``, or ``broken`` where the check itself
            failed.
        reason: Why it was skipped, or how it failed; otherwise what was looked at.
        elapsed_ms: How long it took.
        findings: What it has found.
    """

    __slots__ = ("elapsed_ms", "findings", "id", "reason", "status", "title")
    id: str
    title: str
    status: str
    reason: str
    elapsed_ms: int
    findings: tuple[Finding, ...]

    def __init__(
        self,
        id: str,
        title: str,
        status: str,
        reason: str = "",
        elapsed_ms: int = 0,
        findings: Iterable[Finding] = (),
    ) -> None:
        self._fill(
            id=id,
            title=title,
            status=status,
            reason=reason,
            elapsed_ms=elapsed_ms,
            findings=tuple(findings),
        )


class Topic(NamedTuple):
    """What a check is about.

    Args:
        title: What is true where all is well.
        about: What goes wrong where it is not, and what is read to know.
        when: The option that asks for it, empty for what is always done.
    """

    title: str
    about: str
    when: str = ""
