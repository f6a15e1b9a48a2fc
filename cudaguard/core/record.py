"""The record that ``cudaguard run`` reads when a process has died, begun in each process.

A process tells where it was when it dies of a fault (``faulthandler``) or of an error. How it ended
is known to the one that has started it and waits for it, and is noted there.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # light: `signal` is not
import sys
from atexit import register
from functools import wraps

from cudaguard import system
from cudaguard.files import names_in, open_to_write, os, own_errors
from cudaguard.hooks.caller import caller_frame, describe, hide_frame, importing
from cudaguard.model import TYPE_CHECKING
from cudaguard.system import LOCAL, origin_of_file, peek
from cudaguard.system.processes import state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from importlib.machinery import ModuleSpec
    from types import FrameType
    from typing import Any

    from cudaguard.core.journal import Journal
    from cudaguard.hooks.barrier import Close
    from cudaguard.system.loader_list import LoaderNews

# Set by `cudaguard run` for everything below it: where the record is kept.
FOLDER_VARIABLE = "CUDAGUARD_RUN_FOLDER"
DUMP_TIME_VARIABLE = "CUDAGUARD_RUN_DUMP_TIME"  # on Windows, when they say where they are
TRACE_VARIABLE = "CUDAGUARD_RUN_TRACE"  # by `cudaguard trace`
JOURNAL = "journal"
FAULTS = "faults-"  # followed by the process id
# Upon it processes write down where they are. Of the last real-time signals hardly anyone knows.
DUMP_SIGNAL: int = getattr(_signal, "SIGRTMAX", 2) - 2

# What launchers tell a process: its rank in the job, and how many there are.
_RANKS = (
    ("RANK", "WORLD_SIZE"),  # torchrun and its like
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


def begin(activation: Any) -> None:
    """Begin to record what this process does, and to trace it where that is wanted."""
    core, folder = activation.core, os.environ.get(FOLDER_VARIABLE, "")
    if folder:
        faults, is_ours = _keep(core.journal, folder)
        if os.environ.get(TRACE_VARIABLE):
            if os.name == "nt":  # where libraries are seen by it alone
                import ctypes  # noqa: F401
            activation.trace()
        else:
            _Children(activation, folder, faults, is_ours).watch()
            # After all that the program registers: what dies later dies as it is cleaned up.
            register(core.journal.note, "end", "")
    if core.is_installed:  # the .pth line was first, and its journal is another one
        core.journal.note("install", core.reporter.mode)


def _keep(journal: Journal, folder: str) -> tuple[int, bool]:
    """Begin to record what this process does; return what `write_faults` does.

    A record that cannot be kept (a full disk, the folder gone) is done without: it is only read
    when the program dies, and that must not be our doing.
    """
    journal.record_to(os.path.join(folder, JOURNAL))
    # One process may run several programs, by exec: what follows belongs to a new one.
    words = getattr(sys, "orig_argv", [sys.executable])[1:]  # Python 3.10 and later
    details = {"parent": os.getppid(), "program": words, **({} if _is_worker(words) else _rank())}
    journal.note("start", sys.executable, details=details)
    try:
        return write_faults(os.path.join(folder, f"{FAULTS}{os.getpid()}"))
    # There is no descriptor, folder or such signal.
    except own_errors(ImportError, OSError, ValueError, RuntimeError):
        return -1, False


def _rank() -> dict[str, int]:
    """Return ``rank`` and, where it is known, ``ranks``; nothing outside a job."""
    for names in _RANKS:
        values = [os.environ.get(name, "") for name in names]
        if values[0].isdecimal():
            pairs = zip(("rank", "ranks"), values)
            return {key: int(value) for key, value in pairs if value.isdecimal()}
    return {}


# --- ``faulthandler``, which tells where a process was when it died, writes to a file of ours -----
# Under ``cudaguard run`` only. The program's standard error stays the program's; and where it, or
# its user, has switched ``faulthandler`` on, that stays as it is.

# Far above what programs open: the number of a closed descriptor is soon used for another file,
# and programs that become daemons close them all.
_HIGHEST = 1000


def write_faults(path: str) -> tuple[int, bool]:
    """Have the tracebacks of all threads written to a file when the process dies of a fault.

    They are written upon `DUMP_SIGNAL` as well, and the process goes on, unless that is ignored or
    has a handler. The file is written to at its end, by forked processes too. Return its
    descriptor, -1 if nothing is written there; and False where the program's own ``faulthandler``
    stays as it is.

    Raises:
        OSError: The file cannot be opened.
    """
    import faulthandler

    is_on = faulthandler.is_enabled()
    is_free = bool(DUMP_SIGNAL) and _signal.getsignal(DUMP_SIGNAL) == _signal.SIG_DFL
    if is_on and not is_free:
        return -1, False
    low = open_to_write(path, os.O_APPEND | os.O_CREAT)
    try:
        file = os.dup2(low, _free_number(), inheritable=False)
    finally:
        os.close(low)
    if not is_on:
        faulthandler.enable(file=file, all_threads=True)
        _stand_in_for(vars(faulthandler), file)
    if is_free and hasattr(faulthandler, "register"):
        faulthandler.register(DUMP_SIGNAL, file=file, all_threads=True)
    if at := os.environ.get(DUMP_TIME_VARIABLE):
        from time import time

        faulthandler.dump_traceback_later(max(float(at) - time(), 0.01), file=file)
    return file, not is_on


_real: dict[str, Any] = {}  # functions of `faulthandler`


def _stand_in_for(faulthandler: dict[str, Any], file: int) -> None:
    """Have what the program switches off write to the record again: it never is taken away.

    Handlers that came after ours, as a JVM's, would go with it.
    """
    _real.update((name, faulthandler[name]) for name in ("enable", "disable", "is_enabled"))
    is_on = [True]  # for workers that switch it on unless it is; then as the program has it

    def enable(*args: Any, **kwargs: Any) -> None:
        _real["enable"](*args, **kwargs)
        is_on[0] = True

    def disable() -> bool:
        was_on, is_on[0] = is_on[0], False
        _real["enable"](file=file, all_threads=True)
        return was_on

    stand_ins: tuple[Callable[..., Any], ...] = enable, disable, lambda: is_on[0]
    for name, ours in zip(_real, stand_ins):
        faulthandler[name] = wraps(_real[name])(ours)


def _free_number() -> int:
    """Return the number of a descriptor that is not in use."""
    most = os.sysconf("SC_OPEN_MAX") if hasattr(os, "sysconf") else 0
    number = (min(most, _HIGHEST) if most > 0 else _HIGHEST) - 1
    while True:
        try:
            os.fstat(number)
        except own_errors(OSError):
            return number
        number -= 1


# --- Children -------------------------------------------------------------------------------------

_program_os: Any = sys.modules["os"]
# Where a worker of multiprocessing, or of its copy in celery, begins and ends.
_UTILS = ("multiprocessing.util", "billiard.util")
_WORKERS = ("--multiprocessing-fork", "loky.backend.popen_loky")  # in their command lines


class _Children:
    """Notes whom this process forks, whom it kills, and how those that it waits for have ended.

    A fork begins a record of its own. A worker of multiprocessing (also that of joblib, torch and
    celery) prints the error that ends it and exits, so that Python does not know of the error.

    `faults` and `is_ours` are what `write_faults` returns.
    """

    def __init__(self, activation: Any, folder: str, faults: int, is_ours: bool) -> None:
        self._core, self._journal = activation.core, activation.core.journal
        self._folder, self._faults, self._is_ours = folder, faults, is_ours
        self._file = os.fstat(faults) if faults >= 0 else None
        self._utils: list[object] = []  # whose workers are watched
        self._threads: tuple[set[str], int] = set(), 0  # as it forks, and how many are Python's

    def watch(self) -> None:
        """Begin to, for good."""
        if hasattr(_program_os, "register_at_fork"):
            _program_os.register_at_fork(before=self._count, after_in_child=self._begin_fork)
            for name in ("wait", "wait3", "wait4", "waitpid"):
                _Noted(name, self._note_end)
            for name in ("kill", "killpg"):
                _Noted(name, self._note_kill, is_before=True)  # who waits for it may be faster
            _Noted("putenv", _note_variable, is_before=True)
        if _is_worker(getattr(sys, "orig_argv", getattr(sys, "argv", ()))):
            try:
                import multiprocessing.util  # what its first line imports
            except own_errors(ImportError):
                return
            self._watch_workers()
            process: Any = multiprocessing.process.BaseProcess  # to be spawned is no fork
            original = process._bootstrap

            def begin(worker: object, *args: object, **kwargs: object) -> int:
                self._begin_worker(worker)
                return int(original(worker, *args, **kwargs))

            process._bootstrap = begin

    def _note_end(self, pid: int, status: int, *_: object) -> None:
        if pid and status and not os.WIFSTOPPED(status) and not os.WIFCONTINUED(status):
            number, code = (os.WTERMSIG(status), 0) if os.WIFSIGNALED(status) else (0, status >> 8)
            self._journal.note("child", str(pid), details={"signal": number, "status": code})
        elif pid and not status:
            os.unlink(self._path_of_faults(pid))

    def _note_kill(self, pid: int, number: int) -> None:
        if number and state(pid) != "Z":  # else it was dead (uvicorn)
            self._journal.note("kill", str(pid), details={"signal": int(number)})

    def _path_of_faults(self, pid: int) -> str:
        return os.path.join(self._folder, f"{FAULTS}{pid}")

    def _count(self) -> None:
        self._threads = {*names_in("/proc/self/task")}, len(sys._current_frames())

    def _begin_fork(self) -> None:
        try:
            self._journal.forget_written()
            parent = os.getppid()  # in which those of OpenBLAS have ended: it is prepared for forks
            left = len(self._threads[0] & {*names_in(f"/proc/{parent}/task")}) - self._threads[1]
            details = {"parent": parent, "is_fork": True, "left": left}
            self._journal.note("start", sys.executable, describe(_program_frame()), details)
            self._watch_workers()
            # Unless the program has closed it, and opened another file by that number.
            if self._file and os.path.samestat(self._file, os.fstat(self._faults)):
                own = open_to_write(self._path_of_faults(os.getpid()), os.O_APPEND | os.O_CREAT)
                os.dup2(own, self._faults, inheritable=False)
                os.close(own)
                self._file = os.fstat(self._faults)
        except own_errors(Exception):
            return

    def _watch_workers(self) -> None:
        for util in filter(None, map(sys.modules.get, _UTILS)):
            if util not in self._utils:
                self._utils.append(util)
                util.register_after_fork(self, _Children._begin_worker)

    def _begin_worker(self, worker: Any = None) -> None:
        """Look at what ends this worker."""
        try:
            for util in filter(None, map(sys.modules.get, _UTILS)):
                util.Finalize(None, self._end_worker, exitpriority=0)
            if sys.version_info >= (3, 13):  # it finalizes when the error is gone
                worker = worker or sys.modules["multiprocessing.process"].current_process()
                run = worker.run

                def watched() -> None:
                    try:
                        run()
                    except BaseException as error:
                        hide_frame(error)
                        self._end_worker()
                        raise

                worker.run = watched
            signals = sys.modules.get("torch.utils.data._utils.signal_handling")
            original = peek(signals, "_set_worker_signal_handlers")
            if original is not None and self._is_ours:

                def set_handlers(*args: object) -> None:
                    _real["disable"]()
                    original(*args)  # in place of faulthandler's handlers, which now come first
                    _real["enable"](file=self._faults, all_threads=True)

                vars(signals)["_set_worker_signal_handlers"] = set_handlers
        except own_errors(Exception):
            return

    def _end_worker(self) -> None:
        error = sys.exc_info()[1]
        if error is not None and not issubclass(type(error), SystemExit):
            self._core.error_ends(error)


class _Noted:
    """A function of `os` whose arguments, or results, are noted; binds to nothing, as that."""

    def __init__(self, name: str, note: Callable[..., None], *, is_before: bool = False) -> None:
        self.__wrapped__: Callable[..., Any] = getattr(_program_os, name)
        self.__name__ = self.__qualname__ = name
        self.__module__, self.__doc__ = "os", self.__wrapped__.__doc__
        self._note, self._is_before = note, is_before
        setattr(_program_os, name, self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            found: Any = args if self._is_before else self.__wrapped__(*args, **kwargs)
            try:
                self._note(*found)
            except own_errors(Exception):  # it is nobody's wish but ours
                pass
            return self.__wrapped__(*args, **kwargs) if self._is_before else found
        except BaseException as error:
            hide_frame(error)
            raise

    def __reduce__(self) -> str:
        return self.__name__


# By name of those that the program has set: where, and which files were mapped then.
variables_set: dict[str, tuple[str, list[str]]] = {}


def _note_variable(key: str | bytes, _: object) -> None:
    from cudaguard.elf.process import mapped_files

    name = os.fsdecode(key)
    if name not in variables_set and len(variables_set) < 100:
        variables_set[name] = describe(_program_frame()), mapped_files()


def _is_worker(words: Iterable[str]) -> bool:
    return any(mark in word for word in words for mark in _WORKERS)


def _program_frame() -> FrameType | None:
    """Return the innermost frame that is of no package, nor Python's own."""
    frame = caller_frame()
    while frame is not None:
        file = frame.f_code.co_filename
        if origin_of_file(file) == LOCAL and not file.startswith("<"):
            return frame
        frame = frame.f_back
    return None


# --- What is mapped when, and how imports end -----------------------------------------------------


class Recording:
    """Notes each library before it is loaded, what was mapped once it is, and how imports end.

    What `is_traced`, by `cudaguard trace`, notes what is there already as well.
    """

    def __init__(self, journal: Journal, *, is_traced: bool) -> None:
        from cudaguard.elf.process import mapped_files

        self._journal, self._is_traced = journal, is_traced
        # The loader's own list is cheap to ask for news, once the detectors have brought it.
        self._news: LoaderNews | None = None
        self._mapped_files = mapped_files
        self._known = set() if is_traced else set(mapped_files())

    def begins(self, file: str, module: str = "") -> None:
        """Note that a library is about to be loaded, or an extension module of some name."""
        self.scan_missed_loads()  # what came past us, or by a load that encloses this one
        details: dict[str, object] = {"importing": importing()}
        if module:
            details["module"] = module
        self._journal.note("mapping", file, describe(caller_frame()), details)

    def ended(self, file: str) -> None:
        """Note that a library has been loaded, after whatever came with it."""
        self.scan_missed_loads(file)
        self._journal.note("loaded", file)

    def import_ended(self, name: str, kind: str = "imported") -> None:
        """Note that an import has ended; traced, after what it mapped past us."""
        if self._is_traced:
            self.scan_missed_loads()
        self._journal.note(kind, name)

    def note_failure(self, spec: ModuleSpec) -> Close:
        """Note it where an import fails (see `hooks.barrier.ImportCallbacks`)."""

        def close(error: BaseException | None) -> None:
            if error is not None:
                self.import_ended(spec.name, "failed")

        return close

    def look_until_the_end(self, also: Callable[[], None]) -> None:
        """Look now, and once more when the process ends, after `also`, who else has to look."""

        def end() -> None:
            also()
            self.scan_missed_loads()
            self._journal.note("end", "")

        self.scan_missed_loads()
        register(end)

    def watch_extension(self, spec: ModuleSpec) -> Close:
        """Note what the loading of an extension maps (see `hooks.barrier.ImportCallbacks`)."""
        file = spec.origin or ""
        self.begins(file, spec.name)

        def close(error: BaseException | None) -> None:
            if error is None:
                self.ended(file)
            else:
                self._journal.note("failed", file)

        return close

    def scan_missed_loads(self, cause: str = "") -> None:
        """Note what is new; `cause` is the library that brought it, empty if nobody knows."""
        if self._news is None:
            # An import from here would end here again.
            news = peek(peek(system, "loader_list"), "LoaderNews")
            self._news = None if news is None else news()
        if self._news is None:
            now, is_whole = sorted(self._mapped_files()), True
        else:
            now = [os.path.realpath(name) for name in self._news.names() if os.sep in name]
            is_whole = self._news.is_whole
        new = [file for file in dict.fromkeys(now) if file not in self._known]
        if now and is_whole:
            self._known.clear()  # of what was unloaded
        self._known.update(now)
        for file in new:
            self._journal.note("mapped", file, details={"by": cause} if cause else None)
