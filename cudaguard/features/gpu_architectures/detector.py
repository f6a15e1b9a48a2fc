"""Sees whether torch, CuPy or numba-cuda uses GPUs that its compilers do not know.

torch keeps a list of what is to be done when it initializes CUDA, its own checks among it: there
ours stands too, so that it comes at the first use, when the devices are certain. CuPy and
numba-cuda load their compilers then.
"""

from __future__ import annotations

import sys

from cudaguard.config import local_rank
from cudaguard.core.caller import caller_frame, frame_outside, frame_outside_of, module_of
from cudaguard.core.loader import ON_PURPOSE, print_instead
from cudaguard.files import os, ours
from cudaguard.system.driver import Driver
from cudaguard.system.modules import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from cudaguard.core.detection import NativeLoad
    from cudaguard.core.dispatch import Dispatch
    from cudaguard.model import Finding

_BETWEEN = ("cuda", "cupy", "cupy_backends", "numba", "numba_cuda")  # "cuda" has a loader
_QUEUED = "torch.cuda: looks at the architectures of GPUs when it initializes CUDA"


class ArchitectureDetector:
    """Waits for torch to use CUDA.

    Args:
        core: Is told.
    """

    def __init__(self, core: Dispatch) -> None:
        self._core = core
        self._queue: list[tuple[Callable[[], None], list[str]]] | None = None
        self._told: set[str] = set()

    def imported(self, name: str) -> None:
        """Look at what was imported, if CUDA is in use, or once it is."""
        if name == "torch":
            self._torch_is_there()
        elif name == "triton":
            if Driver().state().is_initialized:
                self._quietly(self._look_at_triton)
        else:
            self._quietly(self._look_at_compilers)

    def begin(self, _: str) -> None:
        """Look at what is there already."""
        if "torch" in sys.modules:
            self._torch_is_there()

    def loaded(self, _: NativeLoad) -> None:
        """Look at CuPy and numba-cuda: they have loaded a compiler."""
        if "cupy" in sys.modules or "numba.cuda" in sys.modules:
            self._quietly(self._look_at_compilers)

    def _torch_is_there(self) -> None:
        """Look at once if torch uses CUDA already, else when it does."""
        torch = sys.modules.get("torch")
        if peek(peek(torch, "version"), "cuda") is None:  # a build without CUDA
            return
        cuda = peek(torch, "cuda")
        if peek(cuda, "_initialized") is True:
            self._look()
            return
        queue = peek(cuda, "_queued_calls")
        is_heard = self._core.permit().tells
        if not is_heard or not isinstance(queue, list) or queue is self._queue:
            return
        self._queue = queue
        queue.append((self._look, []))
        self._core.reporter.changed(_QUEUED, stays=False)

    def forget(self) -> None:
        """Take out of torch's list what was put there."""
        if self._queue is not None:
            self._queue[:] = [entry for entry in self._queue if entry[0] != self._look]
            self._queue = None
            self._core.reporter.put_back(_QUEUED)

    def _look(self) -> None:
        self._quietly(self._look_at_torch)
        if "triton" in sys.modules:
            self._quietly(self._look_at_triton)

    def _look_at_torch(self) -> None:
        from cudaguard.features.gpu_architectures.torch_builds import findings_of, look_at_torch

        # Asked anew: this may be a forked process, in which torch has just initialized CUDA.
        situation = look_at_torch(Driver().capabilities())
        for finding in findings_of(situation, _default_device()) if situation is not None else ():
            self._tell(finding)

    def _look_at_triton(self) -> None:
        from cudaguard.features.gpu_architectures.triton import finding_of, lacking_ptxas

        lacks = lacking_ptxas(Driver().capabilities())
        if lacks:
            self._tell(finding_of(lacks))

    def _look_at_compilers(self) -> None:
        from cudaguard.features.gpu_architectures.kernel_compilers import (
            findings_of,
            known_devices,
        )

        devices = known_devices()
        for finding in findings_of(devices, _default_device()) if devices else ():
            if finding.id not in self._told:  # a second compiler has the same remedy
                self._told.add(finding.id)
                self._core.reporter.found(finding, _frame_of_user())

    def _tell(self, finding: Finding) -> None:
        self._core.reporter.found(finding, frame_outside_of("torch"))

    def _quietly(self, look: Callable[[], None]) -> None:
        """Look; what is wrong with that is not torch's concern, which would fail over it."""
        if not self._core.is_up:
            return
        try:
            look()
        except ON_PURPOSE as warning:  # the user's filters make an error of it
            print_instead(warning)
        except ours(Exception) as error:
            self._core.broken("looking at the architectures of GPUs", error)


def _frame_of_user() -> FrameType | None:
    """Return the frame that led to CuPy or numba-cuda, and by them to the loader of libraries."""
    innermost = frame = caller_frame()
    while frame is not None and module_of(frame).partition(".")[0] in _BETWEEN:
        frame = frame_outside(frame)
    return frame or innermost


def _default_device() -> int:
    return local_rank(os.environ) or 0
