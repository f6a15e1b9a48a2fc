"""The record that ``cudaguard run`` reads when the program has died, begun in each process."""

from __future__ import annotations

import sys
from _signal import SIG_DFL, getsignal  # type: ignore[import-not-found]  # light: `signal` is not

from cudaguard.files import open_to_write, os, own_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudaguard.core.journal import Journal
    from cudaguard.core.lifecycle import Activation

# Set by `cudaguard run` for everything below it: where the record is kept, and the numbers of the
# signals upon which processes write down where they are.
FOLDER_VARIABLE = "CUDAGUARD_RUN_FOLDER"
DUMP_VARIABLE = "CUDAGUARD_RUN_DUMP_SIGNAL"
TRACE_VARIABLE = "CUDAGUARD_RUN_TRACE"  # by `cudaguard trace`
JOURNAL = "journal"
FAULTS = "faults-"  # followed by the process id

# What launchers tell a process: its rank in the job, and how many there are.
_RANKS = (
    ("RANK", "WORLD_SIZE"),  # torchrun and its like
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


def begin(activation: Activation) -> None:
    """Begin to record what this process does, and to trace it where that is wanted.

    Args:
        activation: That of this process.
    """
    core, folder = activation.core, os.environ.get(FOLDER_VARIABLE, "")
    if folder:
        _keep(core.journal, folder)
    if folder and os.environ.get(TRACE_VARIABLE):
        activation.trace()
    if activation.is_up:  # the .pth line was first, and its journal is another one
        core.journal.note("install", core.reporter.mode)


def _keep(journal: Journal, folder: str) -> None:
    """Begin to record what this process does.

    A record that cannot be kept (a full disk, the folder gone) is done without: it is only read
    when the program dies, and that must not be our doing.
    """
    journal.record_to(os.path.join(folder, JOURNAL))
    # One process may run several programs, by exec: what follows belongs to a new one.
    words = getattr(sys, "orig_argv", [sys.executable])[1:]  # Python 3.10 and later
    details = {"parent": os.getppid(), "program": words, **_rank()}
    journal.note("start", sys.executable, details=details)
    numbers = os.environ.get(DUMP_VARIABLE, "").split(",")
    try:
        path = os.path.join(folder, f"{FAULTS}{os.getpid()}")
        write_faults(path, [int(number) for number in numbers if number.isdecimal()])
    # There is no descriptor, folder or such signal.
    except own_errors(ImportError, OSError, ValueError, RuntimeError):
        return


def _rank() -> dict[str, int]:
    """Return ``rank`` and, where it is known, ``ranks``; nothing outside a job."""
    for names in _RANKS:
        told = [os.environ.get(name, "") for name in names]
        if told[0].isdecimal():
            pairs = zip(("rank", "ranks"), told)
            return {key: int(value) for key, value in pairs if value.isdecimal()}
    return {}


# --- ``faulthandler``, which tells where a process was when it died, writes to a file of ours -----
# Under ``cudaguard run`` only. The program's standard error stays the program's; and where it, or
# its user, has switched ``faulthandler`` on, that stays as it is.

# Far above what programs open: the number of a closed descriptor is soon used for another file,
# and programs that become daemons close them all.
_HIGHEST = 1000


def write_faults(path: str, dump_signals: Iterable[int] = ()) -> None:
    """Have the tracebacks of all threads written to a file when the process dies of a fault.

    Args:
        path: The file; written to at its end, by forked processes too.
        dump_signals: Signals upon which they are written as well, and the process goes on. One
            that is ignored, or has a handler, is left as it is.

    Raises:
        OSError: The file cannot be opened.
    """
    import faulthandler

    is_on = faulthandler.is_enabled()
    free = [number for number in dump_signals if getsignal(number) == SIG_DFL]
    if is_on and not free:
        return
    low = open_to_write(path, os.O_APPEND | os.O_CREAT)
    try:
        file = os.dup2(low, _free_number(), inheritable=False)
    finally:
        os.close(low)
    if not is_on:
        faulthandler.enable(file=file, all_threads=True)
    for number in free if hasattr(faulthandler, "register") else ():
        faulthandler.register(number, file=file, all_threads=True)


def _free_number() -> int:
    """Return the number of a descriptor that is not in use."""
    most = os.sysconf("SC_OPEN_MAX")
    number = (min(most, _HIGHEST) if most > 0 else _HIGHEST) - 1
    while True:
        try:
            os.fstat(number)
        except own_errors(OSError):
            return number
        number -= 1
