"""What cudaguard does about public incidents: the table ``coverage.toml`` and its totals."""

from __future__ import annotations

import os
import sys

from cudaguard.files import read_bytes
from cudaguard.model import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "coverage.toml")
# Grade -> what happens to a program that has the incident; the best first.
GRADES = {
    "prevented": "repaired by default",
    "prevented-on-request": "repaired once you enable a rule or call a function",
    "told": "not repaired, but you are told before the harm",
    "explained": "explained after it has happened",
    "none": "silent or wrong",
}
# How an entry is proven -> what its test runs.
PROOFS = {
    "real": "the released packages",
    "native": "compiled stand-ins for their libraries, or for the driver",
    "model": "made-up modules, metadata or message texts",
    "none": "no test",
}
_LIMIT = 1 << 20  # bytes


class Incident(Record):
    """One public report, and what cudaguard does about it.

    Args:
        id: Its id in this table; never reused.
        ref: ``owner/repository#number`` on GitHub.
        expected: The best grade that an import guard could reach.
        grade: The grade that is reached.
        by: Ids of rules, detectors, checks and known errors, or names of public functions.
        proof: How it is known: a key of `PROOFS`.
        test: The test that shows it, as pytest names it, in the source tree; empty if none does.
        reason: Why there is no answer or no proof, or what the test leaves open.
    """

    __slots__ = ("by", "expected", "grade", "id", "proof", "reason", "ref", "test")
    id: str
    ref: str
    expected: str
    grade: str
    by: tuple[str, ...]
    proof: str
    test: str
    reason: str

    def __init__(
        self,
        id: str,
        ref: str,
        expected: str,
        grade: str,
        by: Sequence[str] = (),
        proof: str = "none",
        test: str = "",
        reason: str = "",
    ) -> None:
        self._fill(
            id=id,
            ref=ref,
            expected=expected,
            grade=grade,
            by=tuple(by),
            proof=proof,
            test=test,
            reason=reason,
        )


def incidents() -> tuple[Incident, ...]:
    """Return the incidents in the order of the file."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    document = tomllib.loads(read_bytes(FILE, _LIMIT).decode("utf-8"))
    return tuple(Incident(**table) for table in document["incident"])


def totals(found: Iterable[Incident]) -> list[dict[str, Any]]:
    """Return, for each grade, how many incidents have it: expected, reached, and by which proof."""
    found = tuple(found)
    rows = []
    for grade in GRADES:
        reached = [one for one in found if one.grade == grade]
        rows.append(
            {
                "grade": grade,
                "expected": sum(one.expected == grade for one in found),
                "reached": len(reached),
                "proof": {name: sum(one.proof == name for one in reached) for name in PROOFS},
            }
        )
    return rows
