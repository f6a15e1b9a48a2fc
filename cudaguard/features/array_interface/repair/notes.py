"""Arrays that are handed over: who is told of what."""

from __future__ import annotations

from cudaguard.core.caller import caller_frame
from cudaguard.features.array_interface import messages as wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.core.reports import Reporter
    from cudaguard.features.array_interface.repair.handover import Note


def tell(reporter: Reporter, note: Note) -> None:
    """Tell of a hand-over: what was ordered is logged, a protection that is lost is warned of."""
    if note.ordered:
        finding = wording.ordered(note.producer, note.consumer, note.ordered)
        reporter.log(f"{finding.id}: {finding.what}")
    else:
        finding = wording.may_be_written(note.producer, note.consumer)
    reporter.found(finding, caller_frame())
