"""Finds who initialized CUDA, who created a context, and what comes too late then.

The driver is asked before and after whatever may have done it: the import of a watched module, the
loading of a library. The innermost that was under way when the answer changed is named.

CUDA in a process whose forked workers do without it is normal and legal: nothing is said at the
fork. It becomes a finding where a child uses CUDA all the same.
"""

from __future__ import annotations

import atexit
import sys
from _thread import _local

from cudaguard.features import cuda_init
from cudaguard.features.cuda_init import facts
from cudaguard.files import os, text_in, text_of
from cudaguard.hooks.barrier import ask
from cudaguard.hooks.caller import (
    caller_frame,
    describe,
    describe_line,
    entries_of,
    frame_outside_of,
    frame_running,
    may_look_at_threads,
    module_of,
)
from cudaguard.kernel import has_ctypes
from cudaguard.model import TYPE_CHECKING
from cudaguard.system import LOCAL, origin_of_file, peek
from cudaguard.system.driver import ABSENT, NOWHERE, Driver, DriverState

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import FrameType
    from typing import Any, TypeVar

    from cudaguard.core.detection import NativeLoad
    from cudaguard.core.dispatch import Dispatch
    from cudaguard.features.cuda_init.facts import Expectation, Moment

    T = TypeVar("T")

_INITIALIZED, _CONTEXT = "initialized", "context"
_AT_FORK = "os.register_at_fork: two functions, silent after uninstall"


class CudaDetector:
    """Watches the driver; once CUDA is in the process, also forks and the environment."""

    _is_registered = False  # once per process: at-fork functions stay for good

    def __init__(self, core: Dispatch) -> None:
        self._core = core
        self.driver = Driver()
        self.hears_loads = False  # not before there is a driver
        self.changes: list[facts.Change] = []
        self._last = ABSENT
        # .actors: what this thread is importing, outermost first; .busy: it is inside `_quietly`
        self._thread_state = _local()
        self._known_contexts: set[int] = set()  # handles that were looked at
        # Module, line and device of a context that is nobody else's, until torch comes.
        self._other_context: tuple[str, str, int] | None = None
        self._pid = 0  # the process in which forks and the environment are listened to
        # Variable and moment -> what it was then.
        self._latched: dict[tuple[str, Moment], str | None] = {}
        self._reported: set[str] = set()  # variables, and functions that expect CUDA unused
        self._reported_in = 0  # the process in which a use of CUDA after a fork was told
        self._has_forked = False  # since CUDA was initialized
        self._replaced: list[tuple[object, str, Any, Any]] = []  # owner, name, original, ours

    def begin(self) -> None:
        """Look for the first time."""
        # To import ctypes, which the driver is asked with, is a change.
        self.driver.may_ask = has_ctypes() or self._core.permit().acts
        self._start_detection()

    def ctypes_comes(self) -> None:
        """Look for the first time, if it was not possible before."""
        if not self.driver.may_ask:
            self.driver.may_ask = True
            self._start_detection()

    def _start_detection(self) -> None:
        state = self.driver.state()
        if state != ABSENT:
            self._update(state, "", "before")
            self.look_at_environment()
        if "torch" in sys.modules:
            self._torch_is_there()
        if any(name in sys.modules for name in facts.READERS):
            self._listen()

    # --- imports and loads: who has changed the state of the driver -------------------------------

    def before_load(self) -> None:
        """Look at what has changed so far."""
        self.check_driver()

    def around_import(self, spec: ModuleSpec) -> Callable[[BaseException | None], None]:
        """Look before the import of a module; return what looks after it."""
        actors = self._actors()
        before = self.check_driver()
        self.look_at_environment()
        if before.current != NOWHERE:  # made current by calls, between two imports
            self._look_at_current(actors[-1] if actors else "", before)
        actors.append(spec.name)

        def close(error: BaseException | None) -> None:
            after = self.check_driver(spec.name)
            actors.pop()
            if error is not None:
                self.error_passes(error)
            elif spec.name == "torch":
                self._torch_is_there()
            elif spec.name in facts.READERS:
                self._listen()
                self._latch()
            if after.current != NOWHERE:
                self._look_at_current(spec.name, after)

        return close

    def loaded(self, load: NativeLoad) -> None:
        """Look after a library was loaded."""
        if self.changes and os.path.basename(load.library).startswith("libcuda.so"):
            self._used_in_child("ctypes loads libcuda")
        self.mapped(load)

    def mapped(self, load: NativeLoad | None) -> None:
        """Look what a load has brought, or what came past us."""
        actors = self._actors()
        if load is None:
            self.check_driver()
        elif load.extension and actors[-1:] != [facts.OURSELVES]:
            self.check_driver(load.extension)
        else:
            self.check_driver(is_load=True)

    def check_driver(self, actor: str | None = None, *, is_load: bool = False) -> DriverState:
        """Ask the driver, and record what has changed since the last time.

        `actor` is what this thread was importing meanwhile; None: the innermost import that is
        under way. With `is_load` a library was loaded, by the caller where nothing is imported.
        """
        actors = self._actors()
        if actor is None and actors[-1:] == [facts.OURSELVES]:
            return self._last  # in the middle of our own use: `on_request` will tell
        state = self.driver.state()
        if state != self._last:
            actor = actor or "".join(actors[-1:])
            how = "request" if actor == facts.OURSELVES else "import" if actor else ""
            if is_load and not actor:
                actor, how = module_of(caller_frame()), "load"
            self._update(state, actor, how)
        return state

    def on_request(self, create: Callable[[], T]) -> T:
        """Return what a function returns; what it does to the driver is attributed to the guard."""
        self.check_driver()
        actors = self._actors()
        actors.append(facts.OURSELVES)
        try:
            return create()
        finally:
            try:
                self.check_driver(facts.OURSELVES)
            finally:
                actors.pop()

    @property
    def initializer(self) -> facts.Change | None:
        """The change that initialized CUDA, here or in the process that was forked."""
        return next((change for change in self.changes if change.kind == _INITIALIZED), None)

    def _actors(self) -> list[str]:
        actors: list[str] = self._thread_state.__dict__.setdefault("actors", [])
        return actors

    def _update(self, state: DriverState, actor: str, how: str) -> None:
        last, self._last = self._last, state
        self._listen()
        if (state.is_initialized, state.active) == (last.is_initialized, last.active):
            return  # it was mapped, or another context is current
        from cudaguard.features.cuda_init import findings

        frame = frame_outside_of(actor) if how == "import" else caller_frame() if actor else None
        if state.is_initialized and not last.is_initialized:
            by_torch = _torch_at_work() if how in ("", "load") else None
            user, line = by_torch or (actor, frame)
            change = self._record(_INITIALIZED, NOWHERE, user, how, describe(line))
            self._latch()
            link = facts.REPORTED.get(actor.partition(".")[0], "") if how == "import" else ""
            self._core.reporter.found(findings.initialized(change, link), line)
            self._core.detection.publish("cuda_initialized")
        for device in state.active:
            if device not in last.active:
                change = self._record(_CONTEXT, device, actor, how, describe(frame))
                from cudaguard.config import local_rank

                finding = findings.context_created(change, state.devices, local_rank(os.environ))
                self._core.reporter.found(finding, frame)

    def _record(self, kind: str, device: int, actor: str, how: str, where: str) -> facts.Change:
        from cudaguard.features.cuda_init import findings

        change = facts.Change(kind, device, actor, how, where, os.getpid())
        self.changes.append(change)
        self._core.journal.note("cuda", findings.said(change), change.where, change.to_dict())
        return change

    def _look_at_current(self, actor: str, state: DriverState) -> None:
        """Tell of a context that was left current and is not the primary one, once."""
        from cudaguard.features.cuda_init import findings

        handle = self.driver.current_context()
        if handle in self._known_contexts:
            return
        self._known_contexts.add(handle)
        if self.driver.has_other_context():
            frame = caller_frame()
            where, beside_torch = describe(frame), "torch" in sys.modules
            if not beside_torch:
                self._other_context = (actor, where, state.current)  # it may come later
            finding = findings.two_contexts(actor, where, state.current, beside_torch=beside_torch)
            self._core.reporter.found(finding, frame)

    def _torch_is_there(self) -> None:
        if self._other_context is not None:
            from cudaguard.features.cuda_init import findings

            finding = findings.two_contexts(*self._other_context, beside_torch=True)
            self._other_context = None
            self._core.reporter.found(finding, caller_frame())
        repair = peek(cuda_init, "repair")  # where a context was created
        if repair is not None:
            repair.notify_torch()
        if peek(peek(sys.modules.get("torch"), "version"), "cuda") is not None:
            self._listen()
            self._latch()
            first = self.initializer
            if first is not None and first.pid != os.getpid():
                self._watch_torch()

    # --- the process: what Python calls at a fork and at the end may raise nothing ----------------

    def _listen(self) -> None:
        """Begin to listen to forks and to the environment: CUDA or a reader is in the process."""
        if self._pid:
            return
        self._pid = os.getpid()
        if not CudaDetector._is_registered:  # Python takes neither away again
            os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
            CudaDetector._is_registered = True
        _listening[:] = [self]
        atexit.register(self.look_at_environment)
        self._core.reporter.changed(_AT_FORK, stays=True)
        self.hears_loads = True
        self._core.detection.wake()

    def look_at_environment(self) -> None:
        """Tell of variables that the program has set too late, unless it may be for children."""
        if os.getpid() == self._pid:
            self._quietly("looking at the environment", self._look_at_environment)

    def error_passes(self, error: BaseException) -> None:
        """Look whether an error is that of CUDA in a forked process, this one or a worker of it."""
        self._quietly("looking at an error", lambda: self._look_at_error(error))

    def _quietly(self, what: str, action: Callable[[], None]) -> None:
        if getattr(self._thread_state, "busy", False) or not self._core.is_installed:
            return
        self._thread_state.busy = True
        try:
            ask(self._core, what, action, prints=True)
        finally:
            self._thread_state.busy = False

    def _note_fork(self) -> None:
        # Another thread may be inside the driver, which then would have us wait, and the fork.
        from cudaguard.features.cuda_init import findings

        is_certain = may_look_at_threads() and len(sys._current_frames()) == 1
        if is_certain:
            self.check_driver()
        first = self.initializer
        self.driver.may_be_asked_in_child = is_certain and first is None
        if first is not None:
            self._has_forked = True
            self._core.end.install()
            self._core.journal.note(
                "fork", f"after {findings.said(first, where=True)}", describe(caller_frame())
            )
            self._watch_data_loader()

    def forget(self) -> None:
        """Put the functions back, and listen no longer."""
        if self._pid:
            _listening.clear()
            atexit.unregister(self.look_at_environment)
        for owner, name, original, replacement in self._replaced:
            if peek(owner, name) is replacement:  # else a later patch calls ours
                setattr(owner, name, original)
                self._core.reporter.put_back(_patched(original))
        self._replaced = []

    # --- variables that were read for good --------------------------------------------------------

    def _latch(self) -> None:
        """Remember the variables that have been read for good by now, as they are."""
        for name, moments in facts.READ_AT.items():
            for moment in moments:
                if moment.has_come() or (
                    moment is facts.CUDA_INIT and self.initializer is not None
                ):
                    self._latched.setdefault((name, moment), os.environ.get(name))

    def _look_at_environment(self) -> None:
        devices = self.check_driver().devices
        self._latch()  # what was read since the last look may have been set before that
        for (name, moment), read in tuple(self._latched.items()):
            value = os.environ.get(name)
            is_late = value != read and moment.setting in (value or "")
            if name == "CUDA_VISIBLE_DEVICES" and value is not None:
                is_late = is_late or devices > len([*filter(None, value.split(","))])
            if not is_late or name in self._reported:
                continue
            from cudaguard.core.findings import counted
            from cudaguard.features.cuda_init import findings
            from cudaguard.system.processes import has_had_children

            self._reported.add(name)
            self._core.journal.note("environment", f"{name} changed after {moment.text}")
            if has_had_children():  # it may have been set for them
                continue
            frame = caller_frame()
            used = "no value" if read is None else repr(read)
            if read == value:  # read before we looked, and it has hidden nothing
                used = counted(devices, "devices")
            first = self.initializer if moment is facts.CUDA_INIT else None
            where = _where_set(name, frame)
            finding = findings.too_late_to_set(name, value, used, moment.text, where, first)
            self._core.reporter.found(finding, frame)

    # --- functions that use CUDA in a forked child, or expect that nobody has used it -------------

    def imported(self, name: str) -> None:
        """Watch the functions of a library that are called where CUDA should be unused."""
        # Nothing that a torch without CUDA does matters here.
        if not name.startswith("torch.") or peek(sys.modules.get("torch.version"), "cuda"):
            self._listen()
            for expectation in facts.EXPECTATIONS:
                if expectation.module == name:
                    self._watch_expectation(expectation)

    def _watch_expectation(self, expectation: Expectation) -> None:
        def called(*arguments: Any, **keywords: Any) -> None:
            from cudaguard.features.cuda_init import findings

            self.check_driver()
            is_broken = bool(self.changes) and expectation.is_meant(arguments, keywords)
            if is_broken and expectation.function not in self._reported:
                self._reported.add(expectation.function)
                frame = frame_outside_of(expectation.module.partition(".")[0])
                finding = findings.not_untouched(expectation, self.changes, describe(frame))
                self._core.reporter.found(finding, frame)

        self._precede(sys.modules.get(expectation.module), expectation.function, called)

    def _watch_torch(self) -> None:
        """Notice the first use of CUDA by torch in a child where it must fail.

        torch's own error says that a forked process cannot use CUDA, not whose fault that is, and
        only where torch itself was the one to initialize it.
        """
        self._precede(
            peek(sys.modules.get("torch"), "cuda"),
            "_lazy_init",
            lambda *_, **__: self._used_in_child("torch initializes CUDA"),
        )

    def _watch_data_loader(self) -> None:
        """Notice that a forked worker of torch's DataLoader has failed over CUDA.

        The worker's own finding goes to its log only; its error is raised again in this process.
        """

        def called(wrapper: Any, **_: Any) -> None:
            from cudaguard.features.cuda_init.known_errors import line_of_fork

            self._tell_of_worker(line_of_fork(str(wrapper.exc_msg)))

        self._precede(peek(sys.modules.get("torch._utils"), "ExceptionWrapper"), "reraise", called)

    def _precede(self, owner: object, name: str, action: Callable[..., None]) -> None:
        """Have something done before each call of a function of a module or class."""
        from cudaguard.core.replace import preceded

        original = peek(owner, name)
        known = any(replacement is original for _, _, _, replacement in self._replaced)
        if original is None or known or not self._core.permit().tells:
            return

        what = "telling of a fork"
        replacement = preceded(original, lambda a, k: self._quietly(what, lambda: action(*a, **k)))
        setattr(owner, name, replacement)
        self._replaced.append((owner, name, original, replacement))
        self._core.reporter.changed(_patched(original), stays=False)

    # --- a use of CUDA after a fork, told once per process ----------------------------------------

    def _used_in_child(self, how: str) -> None:
        frame = frame_outside_of("torch")
        self._tell_use(how, frame, describe(frame))

    def _tell_use(self, how: str, frame: FrameType | None, where: str, said: str = "") -> None:
        from cudaguard.features.cuda_init import findings

        first = self.initializer
        if first is not None and os.getpid() not in (first.pid, self._reported_in):
            self._reported_in = os.getpid()
            finding = findings.used_after_fork(how, first, where, said)
            # What fails in a worker of a DataLoader is told in its parent: see above.
            worker = sys.modules.get("torch.utils.data._utils.worker")
            is_told_there = peek(worker, "_worker_info") is not None
            self._core.reporter.found(finding, frame, only_logged=is_told_there)

    def _tell_of_worker(self, line: str) -> None:
        """Tell of the error of a worker, where it is one of CUDA after a fork."""
        from cudaguard.features.cuda_init import findings

        first = self.initializer
        if line and first is not None and self._has_forked and self._reported_in != os.getpid():
            self._reported_in = os.getpid()
            finding = findings.worker_failed(first, line)
            self._core.reporter.found(finding, frame_outside_of("torch"))

    def _look_at_error(self, error: BaseException) -> None:
        from cudaguard.core.known_errors import shown_with
        from cudaguard.features.cuda_init.known_errors import line_of_fork

        first = self.initializer
        line = line_of_fork(text_of(error)) if first is not None else ""
        if first is None or not line:
            return
        if first.pid == os.getpid():
            # How multiprocessing and concurrent.futures raise what was raised in another process.
            if any(type(shown).__name__.endswith("RemoteTraceback") for shown in shown_with(error)):
                self._tell_of_worker(line)
            return
        frame, where = None, ""
        for entry in entries_of(error):
            file = entry.tb_frame.f_code.co_filename
            is_local = file and origin_of_file(file) == LOCAL
            if frame is None or is_local:  # the innermost line of the program's own
                frame, where = entry.tb_frame, describe_line(entry) if is_local else ""
        self._tell_use("CUDA is used", frame, where, line)


def _torch_at_work() -> tuple[str, FrameType | None] | None:
    """Return torch and the line that led into it, if torch has initialized CUDA; else None.

    torch loads NVML inside its initialization: at that load the line is still known.
    """
    if frame_running("torch.cuda", "_lazy_init") is not None:
        return "torch", frame_outside_of("torch")
    has_done = peek(sys.modules.get("torch.cuda"), "_initialized") is True
    return ("torch", None) if has_done else None


_listening: list[CudaDetector] = []  # the one that listens


def _before_fork() -> None:
    for detector in _listening:
        detector._quietly("noting a fork", detector._note_fork)


def _after_fork_in_child() -> None:
    for detector in _listening:
        if detector.initializer is not None:
            detector._quietly("watching torch in a forked process", detector._watch_torch)


def _where_set(name: str, frame: FrameType | None) -> str:
    """Return the last line that sets a variable in the file of a frame, or else in the script."""
    for file in (describe(frame).rpartition(":")[0], *sys.argv[:1]):  # __main__ has none at exit
        import re

        sets = re.compile(
            r"""(?<!\w)@["']?\]?\s{0,9}(=(?!=)|:)|(del|pop|setdefault)\b[^@]{0,99}@(?!\w)"""
        )
        lines = enumerate(text_in(file).splitlines(), 1)
        found = [n for n, line in lines if sets.search(line.replace(name, "@"))]
        if found:
            return f"{file}:{found[-1]}"
    return ""


def _patched(function: Any) -> str:
    return f"{function.__module__}.{function.__qualname__}: tells of CUDA in a forked process"
