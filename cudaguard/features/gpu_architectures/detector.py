"""Does torch, CuPy or numba-cuda, once it uses CUDA, find GPUs that its compilers do not know?

torch keeps a list of what is to be done when it initialises CUDA, its own checks among it: there
ours stands too, so that it comes at the first use, when the devices are certain. CuPy and
numba-cuda load their compilers then.
"""

from __future__ import annotations

import sys

from cudaguard.config import local_rank
from cudaguard.core.caller import caller_frame, frame_outside, frame_outside_of, module_of
from cudaguard.core.loader import ON_PURPOSE, print_instead
from cudaguard.errors import CudaGuardWarning
from cudaguard.features.gpu_architectures.repair.nvrtc import findings_of, look_at_torch
from cudaguard.features.gpu_architectures.repair.ptxas import finding_of, lacking_ptxas
from cudaguard.files.calls import os
from cudaguard.files.foreign import ours
from cudaguard.system.driver import Driver
from cudaguard.system.modules import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from cudaguard.core.repair import Engine
    from cudaguard.model import Finding

_BETWEEN = ("cuda", "cupy", "cupy_backends", "numba", "numba_cuda")  # "cuda" has a loader
_QUEUED = "torch.cuda: looks at the architectures of GPUs when it initialises CUDA"


class ArchitectureDetector:
    """Waits for torch to use CUDA.

    Args:
        engine: Is told.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._queue: list[tuple[Callable[[], None], list[str]]] | None = None
        self._told: set[str] = set()

    def torch_is_there(self) -> None:
        """Look at once if torch uses CUDA already, else when it does."""
        cuda = peek(sys.modules.get("torch"), "cuda")
        if peek(cuda, "_initialized") is True:
            self._look()
            return
        queue = peek(cuda, "_queued_calls")
        if self._engine.mode == "observe" or not isinstance(queue, list) or queue is self._queue:
            return
        self._queue = queue
        queue.append((self._look, []))
        self._engine.changes[_QUEUED] = None

    def triton_is_there(self) -> None:
        """Look at Triton's ptxas, if CUDA is in use."""
        self._quietly(self._look_at_triton)

    def user_of_compilers_is_there(self) -> None:
        """Look at CuPy and numba-cuda, if they are there and so are their compilers."""
        if {"cupy", "numba.cuda"} & sys.modules.keys():
            self._quietly(self._look_at_compilers)

    def leave(self) -> None:
        """Take out of torch's list what was put there."""
        if self._queue is not None:
            self._queue[:] = [entry for entry in self._queue if entry[0] != self._look]
            self._queue = None
            self._engine.changes.pop(_QUEUED, None)

    def _look(self) -> None:
        self._quietly(self._look_at_torch)
        if "triton" in sys.modules:
            self._quietly(self._look_at_triton)

    def _look_at_torch(self) -> None:
        # Asked anew: this may be a forked process, in which torch has just initialised CUDA.
        situation = look_at_torch(Driver().capabilities())
        for finding in findings_of(situation, _default_device()) if situation is not None else ():
            self._tell(finding)

    def _look_at_triton(self) -> None:
        lacks = lacking_ptxas(Driver().capabilities())
        if lacks:
            self._tell(finding_of(lacks))

    def _look_at_compilers(self) -> None:
        from cudaguard.features.gpu_architectures.repair.kernel_compilers import (
            findings_of,
            known_devices,
        )

        devices = known_devices()
        for finding in findings_of(devices, _default_device()) if devices else ():
            if finding.id not in self._told:  # a second compiler has the same remedy
                self._told.add(finding.id)
                self._engine.tell(finding, CudaGuardWarning, frame=_frame_of_user())

    def _tell(self, finding: Finding) -> None:
        self._engine.tell(finding, CudaGuardWarning, frame=frame_outside_of("torch"))

    def _quietly(self, look: Callable[[], None]) -> None:
        """Look; what is wrong with that is not torch's concern, which would fail over it."""
        if self._engine.mode == "off":
            return
        try:
            look()
        except ON_PURPOSE as warning:  # the user's filters make an error of it
            print_instead(warning)
        except ours(Exception) as error:
            self._engine.broken("looking at the architectures of GPUs", error)


def _frame_of_user() -> FrameType | None:
    """Return the frame that led to CuPy or numba-cuda, and by them to the loader of libraries."""
    innermost = frame = caller_frame()
    while frame is not None and module_of(frame).partition(".")[0] in _BETWEEN:
        frame = frame_outside(frame)
    return frame or innermost


def _default_device() -> int:
    return local_rank(os.environ) or 0
