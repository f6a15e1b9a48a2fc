"""Finds GPUs that torch, or its NVRTC, does not know.

torch keeps a list of what is to be done when it initializes CUDA, its own checks among it. Ours is
added, so that it comes at the first use, when the devices are certain.
"""

from __future__ import annotations

import sys

from cudaguard.files import own_errors
from cudaguard.hooks.barrier import ON_PURPOSE, print_instead
from cudaguard.hooks.caller import frame_outside_of
from cudaguard.system.modules import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cudaguard.core.dispatch import Dispatch

_QUEUED = "torch.cuda: looks at the architectures of GPUs when it initializes CUDA"


class ArchitectureDetector:
    """Waits for torch to use CUDA."""

    def __init__(self, core: Dispatch) -> None:
        self._core = core
        self._queue: list[tuple[Callable[[], None], list[str]]] | None = None

    def begin(self) -> None:
        """Look at a torch that is there already."""
        if "torch" in sys.modules:
            self.imported("torch")

    def imported(self, _: str) -> None:
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
        """Look; what is wrong with that is not torch's concern, which would fail over it."""
        if not self._core.is_up:
            return
        try:
            from cudaguard.features.gpu_architectures.checks import look_at_torch

            for finding in look_at_torch():
                self._core.reporter.found(finding, frame_outside_of("torch"))
        except ON_PURPOSE as warning:  # the user's filters make an error of it
            print_instead(warning)
        except own_errors(Exception) as error:
            self._core.broken("looking at the architectures of GPUs", error)
