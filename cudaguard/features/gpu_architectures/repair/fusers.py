"""Switch off the fusers of TorchScript for GPUs, which compile kernels through NVRTC."""

from __future__ import annotations

from cudaguard.core.replace import Replaced
from cudaguard.features.gpu_architectures.architectures import FUSERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class FusersOff(Replaced):
    """The fusers of one torch, switched off; put back as attributes are.

    Args:
        core: ``torch._C``; a torch without some of the switches has none of those fusers.
    """

    def __init__(self, core: Any) -> None:
        self._core = core
        self._were_on = [
            setter for getter, setter in FUSERS if hasattr(core, setter) and getattr(core, getter)()
        ]
        for setter in self._were_on:
            getattr(core, setter)(False)

    def is_in_place(self, owner: Any) -> bool:
        """Is it this torch that was given?"""
        return owner is self._core

    def undo(self) -> bool:
        """Switch on again those that were on."""
        for setter in self._were_on:
            getattr(self._core, setter)(True)
        return True
