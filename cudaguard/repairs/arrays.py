"""Arrays that are handed over: who is told of what."""

from __future__ import annotations

from cudaguard.errors import ArrayInterfaceWarning
from cudaguard.hook.caller import caller_frame
from cudaguard.report import arrays as wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.actions.arrays.handover import Note
    from cudaguard.repairs import Engine


def tell(engine: Engine, note: Note) -> None:
    """Tell of a hand-over: what was ordered is logged, a protection that is lost is warned of."""
    if note.ordered:
        finding = wording.ordered(note.producer, note.consumer, note.ordered)
        engine.log(f"{finding.id}: {finding.what}")
    else:
        finding = wording.may_be_written(note.producer, note.consumer)
    engine.tell(finding, ArrayInterfaceWarning, frame=caller_frame())
