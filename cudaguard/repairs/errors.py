"""Errors of the program that leave a guarded block or end it: what they mean is noted on them."""

from __future__ import annotations

from cudaguard.errors import CudaGuardError, GraphWarning
from cudaguard.hook.caller import caller_frame, frame_outside, module_of
from cudaguard.report import graphs, known
from cudaguard.rules.driver_status import named_status
from cudaguard.rules.fork_errors import line_of_fork
from cudaguard.rules.graph_errors import overwritten
from cudaguard.rules.known_errors import DRIVER, FORK, known_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

    from cudaguard.model import Finding
    from cudaguard.repairs import Engine


def explain_text(text: str) -> Finding | None:
    """Return what a message means, a whole log included; None if nothing is known of it."""
    graph = overwritten(text)
    if graph is not None:
        return graphs.overwritten(graph.producer, graph.function, is_gradient=graph.is_gradient)
    line = line_of_fork(text)
    if line:
        return known.explained(FORK, (), line)
    found = known_error(text)
    if found is not None:
        return known.explained(*found)
    status = named_status(text)
    if status is not None:
        return known.explained(DRIVER, tuple(map(str, status)), text)
    return None


def explain_error(error: BaseException) -> Finding | None:
    """Return what an error means, or one that led to it; None if nothing is known of them."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        finding = explain_text(f"{type(current).__name__}: {current}")
        if finding is not None:
            return finding
        current = current.__cause__ or current.__context__
    return None


def error_passes(engine: Engine, error: BaseException) -> None:
    """Note on an error what it means; one about a CUDA graph is told of as well.

    Before Python 3.11 an error takes no notes: of the last kind there is a warning then.
    """
    if isinstance(error, CudaGuardError) or engine.mode == "observe":
        return  # ours say it themselves
    finding = explain_error(error)
    if finding is None:
        return
    add_note = getattr(error, "add_note", None)
    notes = getattr(error, "__notes__", ())
    if add_note is not None and not any(str(note).startswith("cudaguard ") for note in notes):
        add_note(f"cudaguard {finding}")
    if finding.id == graphs.OVERWRITTEN:
        loud = None if add_note is None else False  # the note says it
        engine.tell(finding, GraphWarning, frame=users_frame(), loud=loud)


def users_frame() -> FrameType | None:
    """Return the frame of the program's own code, not torch's, that has led here."""
    frame = caller_frame()
    if module_of(frame).partition(".")[0] == "torch":
        return frame_outside(frame) or frame
    return frame
