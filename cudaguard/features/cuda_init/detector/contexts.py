"""Finds who initialized CUDA, and who created a context on which device.

The driver is asked before and after whatever may have done it: the import of a watched module, the
loading of a library. The innermost that was under way when the answer changed is named.
"""

from __future__ import annotations

import sys
from _thread import _local, get_ident

from cudaguard.config import local_rank
from cudaguard.core.caller import caller_frame, describe, frame_outside, module_of
from cudaguard.features.cuda_init import messages as wording
from cudaguard.features.cuda_init import repair
from cudaguard.features.cuda_init.initializers import REPORTED
from cudaguard.features.cuda_init.latches import DRIVER, READERS, TORCH
from cudaguard.features.cuda_init.messages import Change
from cudaguard.files import os
from cudaguard.system.driver import ABSENT, NOWHERE, Driver, DriverState
from cudaguard.system.modules import has_ctypes, peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import FrameType, TracebackType

    from cudaguard.core.detection import NativeLoad
    from cudaguard.core.dispatch import Dispatch
    from cudaguard.features.cuda_init.detector.process import ProcessDetector

INITIALIZED, CONTEXT = "initialized", "context"
# torch whose allocator configuration is known to be read when it is imported; in older releases
# parts of it are read later.
_ALLOCATOR_READ_AT_IMPORT = (2, 11)
_BACKEND_READ_AT_IMPORT = (2, 0)


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
            self._tell_what_came_too_late(state)
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
        if actors and actors[-1] == wording.OURSELVES:
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
        if actor is None and actors and actors[-1] == wording.OURSELVES:
            return self._last  # in the middle of our own use: the block will tell
        state = self.driver.state()
        if state != self._last:
            actor = actor or (actors[-1] if actors else "")
            how = "request" if actor == wording.OURSELVES else "import"
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
        self._core.journal.note("cuda", wording.said(change), change.where, change.to_dict())
        if kind == INITIALIZED:
            link = REPORTED.get(actor.partition(".")[0], "") if how == "import" else ""
            finding = wording.initialized(change, link)
        else:
            rank, devices = local_rank(os.environ), self._last.devices
            finding = wording.context_created(change, devices, rank)
        self._core.reporter.found(finding, frame)
        if kind == INITIALIZED:
            self._core.detection.publish("cuda_initialized")

    def _tell_what_came_too_late(self, state: DriverState) -> None:
        """Tell of a variable that hides devices which the driver of this process has."""
        listed = os.environ.get("CUDA_VISIBLE_DEVICES")
        if listed is not None and state.devices > len([*filter(None, listed.split(","))]):
            finding = wording.was_too_late("CUDA_VISIBLE_DEVICES", listed, state.devices)
            self._core.reporter.found(finding, caller_frame())

    def _listen(self) -> ProcessDetector:
        """Begin to listen to forks and to the environment: CUDA is in the process."""
        if self._process is None:
            from cudaguard.features.cuda_init.detector.process import ProcessDetector

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
            finding = wording.foreign_context(actor, frame_text, device, True)
            self._core.reporter.found(finding, caller_frame())
        context = peek(repair, "context")  # where one was created
        if context is not None and context.retained():
            context.tell_torch()
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
        finding = wording.foreign_context(actor, where, state.current, beside_torch)
        self._core.reporter.found(finding, frame)


class _OwnUse:
    """See `CudaDetector.own_use`. Not by `contextlib`, which writes to the errors that pass."""

    def __init__(self, look: Callable[[str | None], object], actors: list[str]) -> None:
        self._look, self._actors = look, actors

    def __enter__(self) -> None:
        self._look(None)
        self._actors.append(wording.OURSELVES)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._look(wording.OURSELVES)
        finally:
            self._actors.pop()


def _parts(version: object) -> tuple[int, ...]:
    words = str(version).split("+")[0].split(".")[:2]
    return tuple(int(word) for word in words) if all(word.isdecimal() for word in words) else ()
