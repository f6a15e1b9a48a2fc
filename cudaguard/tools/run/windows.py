"""The parent of a supervised program on Windows.

Both share the console, which tells each of Ctrl-C and Ctrl-Break: they are for the program, whose
end is reported. All that the program starts belongs to one job, and ends with this process.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from math import inf
from time import monotonic, time

from cudaguard.core.journal import Journal
from cudaguard.core.record import DUMP_TIME_VARIABLE, FOLDER_VARIABLE, JOURNAL
from cudaguard.files import os
from cudaguard.system.processes import CANNOT_START
from cudaguard.system.windows import Job, end_of
from cudaguard.tools.common import note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LONGEST = 1.0  # seconds of one wait
_DUMPING = 0.5  # seconds that processes get to write down where they are


def supervise(
    command: Sequence[str],
    environment: dict[str, str],
    timeout: float,
    look: Callable[[bool, int], None],
) -> tuple[int, int, bool, float]:
    """Run a program; return its id, status, whether its time was up, and the seconds it took."""
    for name in ("SIGINT", "SIGBREAK"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    started, folder, job = monotonic(), environment[FOLDER_VARIABLE], Job()
    environment.pop(DUMP_TIME_VARIABLE, None)  # of a run around this one
    if timeout:
        environment[DUMP_TIME_VARIABLE] = str(time() + timeout)
    journal = Journal(lambda *_: None)
    if folder:
        journal.record_to(os.path.join(folder, JOURNAL))
    try:
        program = job.start(command, environment)
    except OSError as error:
        note("run", f"{command[0]}: {error.strerror}")
        return 0, CANNOT_START, False, 0
    while program.poll() is None:
        left = started + (timeout + _DUMPING if timeout else inf) - monotonic()
        if left <= 0:
            job.end()
            return program.pid, program.wait(), True, timeout
        pid, status = job.wait(min(left, _LONGEST))
        if status and pid != program.pid:
            journal.note("child", str(pid), details={"signal": max(-status, 0)})
        with suppress(Exception):  # whatever it is, the program's end is what counts
            look(False, program.pid)
    job.let_go()
    return program.pid, end_of(program.returncode), False, monotonic() - started
