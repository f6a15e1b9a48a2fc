"""Reporting of findings, each once per process: as a warning, in the log, or both.

Everyone can read it in ``status()`` and in the log. A warning comes only from the main process
and, under a launcher, from local rank 0; eight ranks that say the same help nobody. Only that a
forked process uses CUDA is said by that process itself, as nobody else may come to know.
"""

from __future__ import annotations

import sys

from cudaguard.config import local_rank
from cudaguard.errors import CudaGuardWarning, ForkWarning
from cudaguard.files import open_file, os, own_errors, program_errors
from cudaguard.model import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

    from cudaguard.core.findings import Finding
    from cudaguard.hooks.caller import UserLine

# How multiprocessing, and what is made after it (multiprocess, billiard, loky), start their own
# processes: by code for ``-c`` with this in it, or with this argument.
_OF_WORKERS = ("spawn", "forkserver", "resource_tracker")
_FORK_ARGUMENT = "--multiprocessing-fork"


class Channel:
    """The findings of this process, and the ways they are told."""

    def __init__(self, home: int) -> None:
        self.findings: list[Finding] = []
        self._reported: dict[tuple[str, str], object] = {}
        self._home = home  # id of the process that the guard was first installed in

    def record(self, finding: Finding) -> bool:
        """Keep the finding; False if this process knows it already."""
        # In one step: threads may come with the same at once.
        mine = object()
        if self._reported.setdefault((finding.id, finding.what), mine) is not mine:
            return False
        self.findings.append(finding)
        return True

    def tell(
        self,
        finding: Finding,
        category: type[CudaGuardWarning],  # the warning's class
        frame: FrameType | UserLine | None,  # the line of the program that it is about
        *,
        only_logged: bool = False,  # would it be noise everywhere?
    ) -> None:
        """Warn of a finding, or only log it where a warning would be noise.

        Raises:
            CudaGuardWarning: if the user's filters turn a category of ours into an error.
        """
        # A forked process that uses CUDA is where it hurts, and says so itself.
        is_here = self.is_main_process() or category is ForkWarning
        if is_here and not local_rank(os.environ) and not only_logged:
            _warn(finding, category, frame)
        else:
            log(str(finding), level="WARNING")

    def is_main_process(self) -> bool:
        """Return True unless this is a worker or helper that another Python process has started."""
        if os.getpid() != self._home and _is_alive(self._home):  # a forked worker, no daemon
            return False
        process = sys.modules.get("multiprocessing.process")
        if process is not None and (
            process.parent_process() is not None
            # Spawned, and importing the main module: the flag that multiprocessing itself asks.
            or getattr(process.current_process(), "_inheriting", False)
        ):
            return False
        # Before multiprocessing's own start-up code has run in a spawned child.
        return not any(a == _FORK_ARGUMENT or _starts_worker(a) for a in command_line())


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
        with open_file(f"/proc/{process}/stat", "rb") as file:  # dead and not waited for: Z
            return file.read().rpartition(b")")[2].split()[:1] != [b"Z"]
    except ProcessLookupError:
        return False
    except OSError:  # not ours to signal, or no /proc: there at any rate
        return True


def _starts_worker(code: str) -> bool:
    """Return True for code that runs the main function of a worker, or of a server of workers."""
    for part in code.split(";"):
        words = part.split()
        if len(words) >= 4 and words[0] == "from" and words[2] == "import":
            package, _, module = words[1].rpartition(".")
            if package and module in _OF_WORKERS and words[3].endswith("main"):
                return True
    return False


def command_line() -> list[str]:
    """Return what this interpreter was started with, the code of ``-c`` included, and its argv."""
    started = getattr(sys, "orig_argv", None)
    if started is None:  # Python 3.9
        try:
            with open_file("/proc/self/cmdline", "rb") as file:
                started = os.fsdecode(file.read()).split("\0")
        except own_errors(OSError):
            started = []
    return [*started, *getattr(sys, "argv", ())]


def log(text: str, *, level: str) -> None:
    """Write a record to the logger ``cudaguard``.

    A program that has not imported ``logging`` has no handler that could hear it.
    """
    logging = sys.modules.get("logging")
    get_logger = getattr(logging, "getLogger", None)
    if logging is None or get_logger is None:  # not imported, or half imported
        return
    logger = get_logger("cudaguard")
    if not logger.handlers:
        # Without a handler of the program's own, logging would print to stderr by itself.
        logger.addHandler(logging.NullHandler())
    from cudaguard.files.text import printable_lines

    logger.log(getattr(logging, level), printable_lines(text))


def _warn(
    finding: Finding, category: type[CudaGuardWarning], frame: FrameType | UserLine | None
) -> None:
    import warnings

    file, line = (frame.f_code.co_filename, frame.f_lineno) if frame else ("<cudaguard>", 0)
    try:
        columns = os.get_terminal_size(2).columns
    except own_errors(OSError, ValueError):  # no terminal: whole lines, for those who search
        columns = 0
    lead = f"{file}:{line}: {category.__name__}: "
    text = finding.wrapped(columns and max(40, min(columns, 120)), lead)
    module = frame.f_globals.get("__name__") if frame else None
    if not isinstance(module, str):  # the user's filters may name one
        module = "cudaguard"
    try:
        warnings.warn_explicit(text, category, file, line, module, registry={})
    except program_errors(Exception) as error:  # also of a showwarning that the program has set
        if isinstance(error, CudaGuardWarning) and any(
            action == "error"
            and isinstance(chosen, type)
            and issubclass(chosen, CudaGuardWarning)
            and issubclass(category, chosen)
            for action, _, chosen, _, _ in warnings.filters
        ):
            raise  # the user named us
        if sys.stderr is not None:  # print() would take that for stdout
            from cudaguard.files.text import printable

            print(f"{printable(file)}:{line}: {category.__name__}: {text}", file=sys.stderr)
