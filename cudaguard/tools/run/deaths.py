"""Which process of a program the report is about: the one that explains the end.

A launcher (torchrun, ``accelerate launch``, a shell script, a process pool) ends because a process
that it had started has died: that one is looked at, the first of several. Pure: the journal and
the dumps of ``faulthandler`` in, conclusions out.
"""

from __future__ import annotations

from typing import NamedTuple

from cudaguard.core.journal_reader import ProcessEnded, Raised, Started

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cudaguard.core.journal_reader import Line
    from cudaguard.tools.run.faults import FaultDump

# Errors that only say that another process has ended.
_OF_OTHERS = (
    *("BrokenProcessPool", "CalledProcessError", "ChildFailedError", "ProcessExitedException"),
    *("ProcessRaisedException", "WorkerCrashedError"),
)


class Process(NamedTuple):
    """One Python process below ``cudaguard run``, as it is known from what it wrote.

    Args:
        pid: Its id.
        program: The words that followed the interpreter.
        rank: Its place among the processes of a job; None if it has none.
        ranks: How many there are; 0 if that is not known.
        begun: When it was first heard of, in seconds since the epoch.
        fault: What it has written down when it died of a fault.
        error: The uncaught error that has ended it.
        died: When it wrote that down; 0.0 if it has not.
        has_ended: True if it ended in its own good way.
    """

    pid: int
    program: tuple[str, ...] = ()
    rank: int | None = None
    ranks: int = 0
    begun: float = 0.0
    fault: FaultDump | None = None
    error: Raised | None = None
    died: float = 0.0
    has_ended: bool = False


def processes_of(
    lines: Iterable[Line], faults: Mapping[int, Sequence[FaultDump]]
) -> dict[int, Process]:
    """Return the processes in the order in which they were heard of."""
    found: dict[int, Process] = {}
    for line in lines:
        event = line.event
        known = found.get(line.pid) or Process(line.pid, begun=line.time)
        if isinstance(event, Started):  # perhaps by exec, another program than before
            known = Process(line.pid, *event[1:], begun=known.begun)
        elif isinstance(event, Raised):
            known = known._replace(error=event, died=line.time)
        elif isinstance(event, ProcessEnded):
            known = known._replace(has_ended=True)
        found[line.pid] = known
    for pid, dumps in faults.items():
        fatal = [dump for dump in dumps if dump.what]
        if fatal:
            known = found.get(pid) or Process(pid)
            found[pid] = known._replace(fault=fatal[-1], died=fatal[-1].time)
    return found


def explaining(processes: Mapping[int, Process], own: int) -> Process:
    """Return the process that explains why the program has ended as it did.

    Args:
        processes: As `processes_of` returns them.
        own: The program itself; it has failed, and was not killed by a signal.
    """
    program = processes.get(own, Process(own))
    error = program.error
    if error is not None and not is_of_others(error):
        return program
    others = [process for process in processes.values() if process.pid != own and process.died]
    dead = [process for process in others if process.rank is not None] or [
        process for process in others if process.fault is not None or _is_known(process.error)
    ]
    return min(dead, key=lambda process: process.died, default=program)


def _is_known(error: Raised | None) -> bool:
    """Return True if there is more to say of an error than the process has said."""
    return error is not None and error.finding is not None and not error.is_said


def is_of_others(error: Raised) -> bool:
    """Return True if an error only says that another process has ended."""
    return error.text.partition(":")[0].rpartition(".")[2] in _OF_OTHERS


def silent_ranks(processes: Iterable[Process]) -> list[int]:
    """Return the ranks that neither ended nor wrote down why they died, as after SIGKILL."""
    return sorted(
        process.rank
        for process in processes
        if process.rank is not None and not process.died and not process.has_ended
    )
