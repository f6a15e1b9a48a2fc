"""Finds who initialized CUDA, who created a context, and what comes too late then.

The driver is asked before and after whatever may have done it: the import of a watched module, the
loading of a library. The innermost that was under way when the answer changed is named.

CUDA in a process whose forked workers do without it is normal and legal: nothing is said at the
fork. It becomes a finding where a child uses CUDA all the same.
"""

from __future__ import annotations

import atexit
import re
import sys
from _thread import _local, get_ident

from cudaguard.config import local_rank
from cudaguard.core.barrier import ON_PURPOSE, print_instead
from cudaguard.core.caller import (
    caller_frame,
    describe,
    describe_line,
    frame_outside,
    frame_outside_of,
    may_look_at_threads,
    module_of,
)
from cudaguard.core.findings import counted
from cudaguard.features import cuda_init
from cudaguard.features.cuda_init import findings
from cudaguard.features.cuda_init.facts import (
    BACKEND,
    DRIVER,
    LATCHES,
    OLDER_TORCH,
    READERS,
    REPORTED,
    TORCH,
)
from cudaguard.features.cuda_init.findings import Change
from cudaguard.files import os, ours, read_bytes
from cudaguard.system.driver import ABSENT, NOWHERE, Driver, DriverState
from cudaguard.system.modules import has_ctypes, peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import FrameType, TracebackType
    from typing import Any

    from cudaguard.core.detection import NativeLoad
    from cudaguard.core.dispatch import Dispatch
    from cudaguard.features.cuda_init.expectations import Expectation
    from cudaguard.features.cuda_init.facts import Moment

INITIALIZED, CONTEXT = "initialized", "context"
# torch whose allocator configuration is known to be read when it is imported; in older releases
# parts of it are read later.
_ALLOCATOR_READ_AT_IMPORT = (2, 11)
_BACKEND_READ_AT_IMPORT = (2, 0)
_AT_FORK = "os.register_at_fork: two functions, silent after uninstall"
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_SETS = re.compile(r"""(?<!\w)@["']?\]?\s{0,9}(=(?!=)|:)|(del|pop|setdefault)\b[^@]{0,99}@(?!\w)""")
_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep


class CudaDetector:
    """Watches the driver; one per process.

    Args:
        core: Is told.
    """

    def __init__(self, core: Dispatch) -> None:
        self._core = core
        self.driver = Driver()
        self.hears_loads = False  # not before there is a driver
        self.changes: list[Change] = []
        self._last = ABSENT
        self._here = _local()  # .actors: what this thread is importing, outermost first
        self._process: ProcessDetector | None = None
        self._known_contexts: set[int] = set()  # handles that were looked at
        # Module, line and device of a context that is nobody else's, until torch comes.
        self._foreign: tuple[str, str, int] | None = None

    def begin(self, _: str) -> None:
        """Look for the first time."""
        # To import ctypes, which the driver is asked with, is a change.
        self.driver.may_ask = has_ctypes() or self._core.permit().acts
        self._look_back()

    def ctypes_comes(self) -> None:
        """Look for the first time, if it was not possible before."""
        if not self.driver.may_ask:
            self.driver.may_ask = True
            self._look_back()

    def _look_back(self) -> None:
        state = self.driver.state()
        if state != ABSENT:
            self._update(state, "", "before")
            self._listen().look_at_environment()
        if "torch" in sys.modules:
            self._torch_is_there()
        if any(name in sys.modules for name in READERS):
            self._listen()

    def unseen(self) -> None:
        """Look whether the driver has come."""
        self.look()

    def before_load(self) -> None:
        """Look at what has changed so far."""
        self.look()

    def around_import(self, spec: ModuleSpec) -> Callable[[BaseException | None], None]:
        """Open a window around the import of a module; return what closes it."""
        actors = self._actors()
        before = self.look()
        if self._process is not None:
            self._process.look_at_environment()
        if before.current != NOWHERE:  # made current by calls, between two imports
            self._look_at_current(actors[-1] if actors else "", before)
        actors.append(spec.name)

        def close(error: BaseException | None) -> None:
            after = self.look(spec.name)
            actors.pop()
            if error is not None and after.is_forked and "CUDA" in str(error):
                self._listen().used_in_child(f"the import of {spec.name} uses CUDA")
            elif error is not None:
                self.error_passes(error)
            if spec.name == "torch" and error is None:
                self._torch_is_there()
            elif spec.name in READERS and error is None:
                self._listen()
            if after.current != NOWHERE:
                self._look_at_current(spec.name, after)

        return close

    def imported(self, name: str) -> None:
        """Have it noticed where a library finds CUDA in use that expects it not to be."""
        # Nothing that a torch without CUDA does matters here.
        if not name.startswith("torch.") or peek(sys.modules.get("torch.version"), "cuda"):
            self._listen().expect(name)

    @property
    def initializer(self) -> Change | None:
        """Who initialized CUDA, here or in the process that this one was forked from."""
        return next((change for change in self.changes if change.kind == INITIALIZED), None)

    def error_passes(self, error: BaseException) -> None:
        """Look whether an error of the program is that of CUDA after a fork."""
        if self._process is not None:
            self._process.error_passes(error)

    def forget(self) -> None:
        """Put back what can be put back."""
        if self._process is not None:
            self._process.leave()

    def own_use(self) -> _OwnUse:
        """Return a block: what happens inside is attributed to the guard itself."""
        return _OwnUse(self.look, self._actors())

    def loaded(self, load: NativeLoad) -> None:
        """Look after a library was loaded."""
        if self.changes and os.path.basename(load.library).startswith("libcuda.so"):
            self._listen().used_in_child("ctypes loads libcuda")
        self.mapped(load)

    def mapped(self, load: NativeLoad) -> None:
        """Look what a load has brought."""
        actors = self._actors()
        if actors and actors[-1] == findings.OURSELVES:
            return  # the block will tell
        state = self.driver.state()
        if state != self._last:
            actor = load.extension or (actors[-1] if actors else "")
            if actor:
                self._update(state, actor, "import")
            else:
                self._update(state, module_of(caller_frame()), "load")

    def look(self, actor: str | None = None) -> DriverState:
        """Ask the driver, and record what has changed since the last time.

        Args:
            actor: What this thread was importing in the meantime; None takes the innermost
                import that is under way.
        """
        actors = self._actors()
        if actor is None and actors and actors[-1] == findings.OURSELVES:
            return self._last  # in the middle of our own use: the block will tell
        state = self.driver.state()
        if state != self._last:
            actor = actor or (actors[-1] if actors else "")
            how = "request" if actor == findings.OURSELVES else "import"
            self._update(state, actor, how if actor else "")
        return state

    def _update(self, state: DriverState, actor: str, how: str) -> None:
        last, self._last = self._last, state
        self._listen()
        frame = caller_frame() if actor else None
        if how == "import" and module_of(frame).partition(".")[0] == actor.partition(".")[0]:
            frame = frame_outside(frame) or frame
        if state.is_initialized and not last.is_initialized:
            self._record(INITIALIZED, NOWHERE, actor, how, frame)
        for device in state.active:
            if device not in last.active:
                self._record(CONTEXT, device, actor, how, frame)

    def _actors(self) -> list[str]:
        actors: list[str] = self._here.__dict__.setdefault("actors", [])
        return actors

    def _record(
        self, kind: str, device: int, actor: str, how: str, frame: FrameType | None
    ) -> None:
        change = Change(kind, device, actor, how, describe(frame), os.getpid(), get_ident())
        self.changes.append(change)
        if kind == INITIALIZED:
            self._listen().latch(DRIVER)
        self._core.journal.note("cuda", findings.said(change), change.where, change.to_dict())
        if kind == INITIALIZED:
            link = REPORTED.get(actor.partition(".")[0], "") if how == "import" else ""
            finding = findings.initialized(change, link)
        else:
            rank, devices = local_rank(os.environ), self._last.devices
            finding = findings.context_created(change, devices, rank)
        self._core.reporter.found(finding, frame)
        if kind == INITIALIZED:
            self._core.detection.publish("cuda_initialized")

    def _listen(self) -> ProcessDetector:
        """Begin to listen to forks and to the environment: CUDA is in the process."""
        if self._process is None:
            self._process = ProcessDetector(self._core, self)
            self._process.begin()
            self.hears_loads = True
            self._core.detection.wake()
        return self._process

    def _torch_is_there(self) -> None:
        torch = sys.modules.get("torch")
        if self._foreign is not None:
            actor, frame_text, device = self._foreign
            self._foreign = None
            finding = findings.foreign_context(actor, frame_text, device, True)
            self._core.reporter.found(finding, caller_frame())
        repair = peek(cuda_init, "repair")  # where one was created
        if repair is not None and repair.retained():
            repair.tell_torch()
        version = peek(torch, "version")
        if peek(version, "cuda") is not None:  # else a build without CUDA
            process = self._listen()
            release = _parts(peek(torch, "__version__"))
            if release >= _ALLOCATOR_READ_AT_IMPORT:
                process.latch(TORCH)
            elif release >= _BACKEND_READ_AT_IMPORT:
                process.latch_backend()
            first = self.initializer
            if first is not None and first.pid != os.getpid():
                process.watch_torch()

    def _look_at_current(self, actor: str, state: DriverState) -> None:
        handle = self.driver.current_context()
        if handle in self._known_contexts:
            return
        self._known_contexts.add(handle)
        if self.driver.has_foreign_context():
            self._tell_foreign(actor, state)

    def _tell_foreign(self, actor: str, state: DriverState) -> None:
        frame = caller_frame()
        where, beside_torch = describe(frame), "torch" in sys.modules
        if not beside_torch:
            self._foreign = (actor, where, state.current)  # it may come later
        finding = findings.foreign_context(actor, where, state.current, beside_torch)
        self._core.reporter.found(finding, frame)


class _OwnUse:
    """See `CudaDetector.own_use`. Not by `contextlib`, which writes to the errors that pass."""

    def __init__(self, look: Callable[[str | None], object], actors: list[str]) -> None:
        self._look, self._actors = look, actors

    def __enter__(self) -> None:
        self._look(None)
        self._actors.append(findings.OURSELVES)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._look(findings.OURSELVES)
        finally:
            self._actors.pop()


def _parts(version: object) -> tuple[int, ...]:
    words = str(version).split("+")[0].split(".")[:2]
    return tuple(int(word) for word in words) if all(word.isdecimal() for word in words) else ()


def _hides(visible: str | None, devices: int) -> bool:
    """Return True if CUDA_VISIBLE_DEVICES names fewer devices than the driver has."""
    return visible is not None and devices > len([*filter(None, visible.split(","))])


def _where_set(name: str, frame: FrameType | None) -> str:
    """Return the last line that sets a variable in the file of a frame, or else in the script."""
    for file in (describe(frame).rpartition(":")[0], *sys.argv[:1]):  # __main__ has none at exit
        try:
            lines = read_bytes(file, 1 << 20).decode("utf-8", "replace").splitlines()
        except ours(OSError, ValueError, TypeError):
            continue
        found = [n for n, one in enumerate(lines, 1) if _SETS.search(one.replace(name, "@"))]
        if found:
            return f"{file}:{found[-1]}"
    return ""


# The one that listens. At-fork functions stay for good.
_listening: list[ProcessDetector | None] = []


def _before_fork() -> None:
    for one in _listening:
        if one is not None:
            one.before_fork()


def _after_fork_in_child() -> None:
    for one in _listening:
        if one is not None:
            one.after_fork_in_child()


class ProcessDetector:
    """Listens to forks, and compares the environment with what was read of it for good.

    Args:
        core: Is told.
        cuda: Knows who initialized CUDA.
    """

    def __init__(self, core: Dispatch, cuda: CudaDetector) -> None:
        self._core = core
        self._cuda = cuda
        self._here = _local()  # .busy: this thread is inside one of the calls below
        self._pid = os.getpid()
        self._told: set[str] = set()  # variables
        self._expected: set[str] = set()  # functions of which was told
        self._told_in = 0  # the process in which a use of CUDA after a fork was told
        self._latched: dict[str, str | None] = {}
        self._moments: set[Moment] = set()  # that have come
        self._has_forked = False  # since CUDA was initialized
        self._stand_ins: list[tuple[object, str, Any, Any]] = []  # owner, name, original, ours

    def begin(self) -> None:
        """Listen from now on."""
        if not _listening:  # once per process: Python takes neither away again
            os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
        _listening[:] = [self]
        atexit.register(self.look_at_environment)
        self._core.reporter.changed(_AT_FORK, stays=True)

    def latch(self, moment: Moment) -> None:
        """Remember the variables that have been read for good now, as they are."""
        self._moments.add(moment)
        for name, when in LATCHES.items():
            if when is moment:
                self._latched.setdefault(name, os.environ.get(name))

    def latch_backend(self) -> None:
        """Remember the allocator's settings: torch has chosen its backend by them."""
        for name in OLDER_TORCH:
            self._latched.setdefault(name + BACKEND, os.environ.get(name))

    # --- called by Python at a fork and at the end: nothing may be raised from these -----------

    def before_fork(self) -> None:
        """Take note that a process that uses CUDA is forked."""
        self._quietly("noting a fork", self._note_fork)

    def after_fork_in_child(self) -> None:
        """Forget what the threads of the parent were doing, and notice a use of CUDA."""
        self._here = _local()
        if self._cuda.initializer is not None:
            self._quietly("watching torch in a forked process", self.watch_torch)

    def look_at_environment(self) -> None:
        """Tell of variables that the program has set too late, unless it may be for children."""
        if os.getpid() == self._pid:
            self._quietly("looking at the environment", self._look_at_environment)

    def _quietly(self, what: str, action: Any) -> None:
        if getattr(self._here, "busy", False) or not self._core.is_up:
            return
        self._here.busy = True
        try:
            action()
        except ON_PURPOSE as warning:  # the user's filters make an error of it
            print_instead(warning)
        except ours(Exception) as error:
            self._core.broken(what, error)
        finally:
            self._here.busy = False

    def _note_fork(self) -> None:
        # Another thread may be inside the driver, which then would have us wait, and the fork.
        is_certain = may_look_at_threads() and len(sys._current_frames()) == 1
        if is_certain:
            self._cuda.look()
        first = self._cuda.initializer
        self._cuda.driver.may_be_asked_in_child = is_certain and first is None
        if first is not None:
            self._has_forked = True
            self._core.journal.note(
                "fork", f"after {findings.said(first, where=True)}", describe(caller_frame())
            )
            self._watch_data_loader()

    def _look_at_environment(self) -> None:
        devices = self._cuda.look().devices
        for name, when in LATCHES.items():
            if name in self._told:
                continue
            value, key, moment = os.environ.get(name), name, when
            if when is TORCH and TORCH not in self._moments:
                if BACKEND in (value or "") and name + BACKEND in self._latched:
                    key = name + BACKEND
                else:
                    moment = OLDER_TORCH[name]
            if moment.has_come():  # was it set before that? It may have been
                self._latched.setdefault(name, value)
            is_late = key in self._latched and value != self._latched[key]
            if is_late or (name == _VISIBLE and _hides(value, devices)):
                self._tell_late(name, value, key, moment, devices)

    def _tell_late(
        self, name: str, value: str | None, key: str, moment: Moment, devices: int
    ) -> None:
        from cudaguard.system.processes import has_had_children

        self._told.add(name)
        self._core.journal.note("environment", f"{name} changed after {moment.text}")
        if has_had_children():  # it may have been set for them
            return
        frame = caller_frame()
        used = self._latched.get(key, value)
        words = "no value" if used is None else repr(used)
        if used == value:  # read before we looked, and it has hidden nothing
            words = counted(devices, "devices")
        finding = findings.too_late_to_set(
            name,
            value,
            words,
            moment.text,
            _where_set(name, frame),
            self._cuda.initializer if moment is DRIVER else None,
        )
        self._core.reporter.found(finding, frame)

    # --- called where a forked child touches CUDA -------------------------------------

    def used_in_child(self, how: str) -> None:
        """Tell, once, that a forked child uses CUDA although its parent had initialized it.

        Args:
            how: What it does, in words.
        """
        first = self._cuda.initializer
        if first is not None:
            frame = frame_outside_of("torch")
            self._tell_use(first, how, frame, describe(frame))

    def _tell_use(
        self, first: Change, how: str, frame: FrameType | None, where: str, said: str = ""
    ) -> None:
        if os.getpid() not in (first.pid, self._told_in):
            self._told_in = os.getpid()
            finding = findings.used_after_fork(how, first, where, said)
            # What fails in a worker of a DataLoader is told in its parent: see below.
            worker = sys.modules.get("torch.utils.data._utils.worker")
            is_told_there = peek(worker, "_worker_info") is not None
            self._core.reporter.found(finding, frame, only_logged=is_told_there)

    def expect(self, module: str) -> None:
        """Notice where a library finds CUDA in use, in a module that was imported."""
        from cudaguard.features.cuda_init.expectations import EXPECTATIONS

        for one in EXPECTATIONS:
            if one.module == module:

                def called(*args: Any, one: Expectation = one, **kwargs: Any) -> None:
                    self._cuda.look()
                    if one.is_meant(args, kwargs):
                        self._tell_expectation(one)

                self._precede(sys.modules.get(module), one.function, called)

    def _tell_expectation(self, one: Expectation) -> None:
        changes = self._cuda.changes
        if changes and one.function not in self._expected:
            self._expected.add(one.function)
            frame = frame_outside_of(one.module.partition(".")[0])
            self._core.reporter.found(findings.not_untouched(one, changes, describe(frame)), frame)

    def watch_torch(self) -> None:
        """Notice the first use of CUDA by torch in a child where it must fail.

        torch's own error says that a forked process cannot use CUDA, not whose fault that is, and
        only where torch itself was the one to initialize it.
        """
        self._precede(
            peek(sys.modules.get("torch"), "cuda"),
            "_lazy_init",
            lambda *_, **__: self.used_in_child("torch initializes CUDA"),
        )

    def _watch_data_loader(self) -> None:
        """Notice that a forked worker of torch's DataLoader has failed over CUDA.

        The worker's own finding goes to its log only; its error is raised anew in this process.
        """

        def called(wrapper: Any, **_: Any) -> None:
            from cudaguard.features.cuda_init.known_errors import line_of_fork

            self._tell_of_worker(line_of_fork(str(wrapper.exc_msg)))

        utils = sys.modules.get("torch._utils")
        self._precede(peek(utils, "ExceptionWrapper"), "reraise", called)

    def error_passes(self, error: BaseException) -> None:
        """Look whether an error is that of CUDA in a forked process, this one or a worker of it."""
        self._quietly("looking at an error", lambda: self._look_at_error(error))

    def _look_at_error(self, error: BaseException) -> None:
        first = self._cuda.initializer
        if first is None:
            return
        from cudaguard.core.known_errors import text_of
        from cudaguard.features.cuda_init.known_errors import line_of_fork

        line = line_of_fork(text_of(error))
        if not line:
            return
        if first.pid == os.getpid():
            # How multiprocessing and concurrent.futures raise what was raised in another process.
            if type(error.__cause__).__name__.endswith("RemoteTraceback"):
                self._tell_of_worker(line)
            return
        traceback = error.__traceback__
        frame, where = (None if traceback is None else traceback.tb_frame), ""
        while traceback is not None:
            if _is_users(traceback.tb_frame):  # the innermost line of the program's own
                frame, where = traceback.tb_frame, describe_line(traceback)
            traceback = traceback.tb_next
        self._tell_use(first, "CUDA is used", frame, where, line)

    def _tell_of_worker(self, line: str) -> None:
        """Tell of the error of a worker, where it is one of CUDA after a fork."""
        first = self._cuda.initializer
        if line and first is not None and self._has_forked and self._told_in != os.getpid():
            self._told_in = os.getpid()
            finding = findings.worker_failed(first, line)
            self._core.reporter.found(finding, frame_outside_of("torch"))

    def _precede(self, owner: object, name: str, action: Callable[..., None]) -> None:
        """Have something done before each call of a function of a module or class."""
        original = peek(owner, name)
        known = any(stand_in is original for _, _, _, stand_in in self._stand_ins)
        if original is None or known or not self._core.permit().tells:
            return

        def stand_in(*args: Any, **kwargs: Any) -> Any:
            self._quietly("telling of a fork", lambda: action(*args, **kwargs))
            return original(*args, **kwargs)

        for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(stand_in, attribute, getattr(original, attribute, None))
        vars(stand_in)["__wrapped__"] = original  # for who asks for its signature
        setattr(owner, name, stand_in)
        self._stand_ins.append((owner, name, original, stand_in))
        self._core.reporter.changed(_patched(original), stays=False)

    def leave(self) -> None:
        """Put the functions back, and listen no longer."""
        _listening[:] = [None]
        atexit.unregister(self.look_at_environment)
        for owner, name, original, stand_in in self._stand_ins:
            if peek(owner, name) is stand_in:  # else a later patch calls ours
                setattr(owner, name, original)
                self._core.reporter.put_back(_patched(original))
        self._stand_ins = []


def _patched(function: Any) -> str:
    return f"{function.__module__}.{function.__qualname__}: tells of CUDA in a forked process"


def _is_users(frame: FrameType | None) -> bool:
    """Return True if this is the program's own code, not an installed package's or Python's."""
    if frame is None or frame.f_code.co_filename.startswith(_STANDARD_LIBRARY):
        return False
    file = frame.f_code.co_filename
    return bool(file) and not any(part in file for part in _INSTALLED)
