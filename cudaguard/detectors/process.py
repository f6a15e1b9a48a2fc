"""Forks and environment variables that come too late, once CUDA is in the process.

CUDA in a process whose forked workers do without it is normal and legal: nothing is said at the
fork. It becomes a finding where a child uses CUDA all the same.
"""

from __future__ import annotations

import os
import sys
from _thread import _local

from cudaguard.errors import ForkWarning, LatchedEnvironmentWarning
from cudaguard.hook import audit
from cudaguard.hook.caller import caller_frame, describe, frame_outside, module_of
from cudaguard.hook.loader import ON_PURPOSE, print_instead
from cudaguard.probe.modules import peek
from cudaguard.report import cuda as wording
from cudaguard.rules.latches import DRIVER, LATCHES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Protocol

    from cudaguard.probe.driver import Driver
    from cudaguard.repairs import Engine
    from cudaguard.report.cuda import Change

    class Cuda(Protocol):
        """What is asked of `cudaguard.detectors.cuda.CudaDetector`."""

        driver: Driver

        @property
        def initialiser(self) -> Change | None:
            """Who initialised CUDA, here or in the parent."""

        def look(self) -> object:
            """Ask the driver, and record what has changed."""


_HOOKS = "sys.addaudithook, os.register_at_fork: one each, silent after uninstall (stays)"
_PATCHED = "torch.cuda._lazy_init: in this process, forked after CUDA was initialised"
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep


class ProcessDetector:
    """Listens to forks and to changes of the environment.

    Args:
        engine: Is told.
        cuda: Knows who initialised CUDA.
    """

    def __init__(self, engine: Engine, cuda: Cuda) -> None:
        self._engine = engine
        self._cuda = cuda
        self._here = _local()  # .busy: this thread is inside one of the calls below
        self._told: set[tuple[str, str]] = set()
        self._told_in = 0  # the process in which a use of CUDA after a fork was told
        self._latched: dict[str, str | None] = {}

    def begin(self) -> None:
        """Listen from now on."""
        audit.listen(self)
        self._engine.touched[_HOOKS] = None

    def latch(self, moment: str) -> None:
        """Remember the variables that have been read for good now, as they are."""
        for name, when in LATCHES.items():
            if when == moment:
                self._latched.setdefault(name, os.environ.get(name))

    # --- called by the audit hook: nothing may be raised from these ------------------

    def before_fork(self) -> None:
        """Take note that a process that uses CUDA is forked."""
        self._quietly("noting a fork", self._note_fork)

    def after_fork_in_child(self) -> None:
        """Forget what the threads of the parent were doing, and notice a use of CUDA."""
        self._here = _local()
        if self._cuda.initialiser is not None:
            self._quietly("watching torch in a forked process", self.watch_torch)

    def variable_changes(self, name: str, value: str | None) -> None:
        """Tell of a variable that is set too late by the program itself."""
        if name in LATCHES:
            self._quietly(f"looking at {name}", lambda: self._look_at(name, value))

    def _quietly(self, what: str, action: Any) -> None:
        if getattr(self._here, "busy", False) or self._engine.mode == "off":
            return
        self._here.busy = True
        try:
            action()
        except ON_PURPOSE as warning:  # the user's filters make an error of it
            print_instead(warning)
        except Exception as error:
            self._engine.broken(what, error)
        finally:
            self._here.busy = False

    def _note_fork(self) -> None:
        # Another thread may be inside the driver, which then would have us wait, and the fork.
        is_certain = len(sys._current_frames()) == 1
        if is_certain:
            self._cuda.look()
        first = self._cuda.initialiser
        self._cuda.driver.may_be_asked_in_child = is_certain and first is None
        if first is not None:
            self._engine.journal.note(
                "fork", f"after {wording.said(first, where=True)}", describe(caller_frame())
            )

    def _look_at(self, name: str, value: str | None) -> None:
        if LATCHES[name] == DRIVER:
            self._cuda.look()
        if name not in self._latched or value == self._latched[name]:
            return
        frame = caller_frame()
        where = describe(frame)
        self._engine.journal.note("environment", f"{name} changed after {LATCHES[name]}", where)
        # Once per line: a loop over values for children says the same each time.
        if _is_users(frame) and (name, where) not in self._told:
            self._told.add((name, where))
            first = self._cuda.initialiser if LATCHES[name] == DRIVER else None
            finding = wording.too_late_to_set(
                name, value, self._latched[name], LATCHES[name], where, first
            )
            self._engine.tell(finding, LatchedEnvironmentWarning, frame=frame)

    # --- called where a forked child touches CUDA -------------------------------------

    def used_in_child(self, how: str) -> None:
        """Tell, once, that a forked child uses CUDA although its parent had initialised it.

        Args:
            how: What it does, in words.
        """
        first = self._cuda.initialiser
        if first is not None and os.getpid() not in (first.pid, self._told_in):
            self._told_in = os.getpid()
            frame = caller_frame()
            if module_of(frame).partition(".")[0] == "torch":
                frame = frame_outside(frame) or frame
            finding = wording.used_after_fork(how, first, describe(frame))
            self._engine.tell(finding, ForkWarning, frame=frame)

    def watch_torch(self) -> None:
        """Notice the first use of CUDA by torch in a child where it must fail.

        torch's own error says that a forked process cannot use CUDA, not whose fault that is, and
        only where torch itself was the one to initialise it.
        """
        cuda = peek(sys.modules.get("torch"), "cuda")
        original = peek(cuda, "_lazy_init")
        if original is None or hasattr(original, "_cudaguard") or self._engine.mode == "observe":
            return

        def _lazy_init() -> None:
            self._quietly("telling of a fork", lambda: self.used_in_child("torch initialises CUDA"))
            original()

        for attribute in ("__module__", "__qualname__", "__doc__"):
            setattr(_lazy_init, attribute, getattr(original, attribute, None))
        self._engine.touched[_PATCHED] = None

        _lazy_init._cudaguard = original  # type: ignore[attr-defined]  # to be recognised by
        cuda._lazy_init = _lazy_init

    def leave(self) -> None:
        """Put torch's function back, and listen no longer."""
        audit.listen(None)
        cuda = peek(sys.modules.get("torch"), "cuda")
        original = getattr(peek(cuda, "_lazy_init"), "_cudaguard", None)
        if original is not None:
            cuda._lazy_init = original
            self._engine.touched.pop(_PATCHED, None)


def _is_users(frame: FrameType | None) -> bool:
    """Is this the program's own code, rather than an installed package's or Python's?"""
    file = "" if frame is None else frame.f_code.co_filename
    return (
        bool(file)
        and not file.startswith(_STANDARD_LIBRARY)
        and not any(part in file for part in _INSTALLED)
    )
