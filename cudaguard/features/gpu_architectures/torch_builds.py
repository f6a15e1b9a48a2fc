"""torch on GPUs that it, or its NVRTC, does not know: looked at."""

from __future__ import annotations

import sys
from typing import NamedTuple

from cudaguard.features.gpu_architectures import messages as wording
from cudaguard.features.gpu_architectures.policy import (
    CANNOT_RUN,
    FINE,
    KNOWN,
    NO_JIT,
    asked_for,
    cure_for,
    nearest,
    torch_of,
    verdict,
)
from cudaguard.system.modules import peek
from cudaguard.system.torch_build import are_wheels_known, copy_for, folder_of, installed_copies

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.features.gpu_architectures.policy import Pair, Torch
    from cudaguard.model import Finding
    from cudaguard.system.torch_build import Nvrtc


class Situation(NamedTuple):
    """A torch on the devices of this process.

    Args:
        devices: Their compute capabilities, by ordinal.
        torch: What it was built for.
        nvrtc: The NVRTC that serves it, or will; None if that is not known.
    """

    devices: tuple[Pair, ...]
    torch: Torch
    nvrtc: Nvrtc | None

    def with_verdict(self, wanted: str) -> dict[int, Pair]:
        """Return the devices of which a verdict is true, by ordinal."""
        release = None if self.nvrtc is None else self.nvrtc.release
        return {
            ordinal: device
            for ordinal, device in enumerate(self.devices)
            if verdict(device, self.torch, release) == wanted
        }


def look_at_torch(devices: tuple[Pair, ...]) -> Situation | None:
    """Return how the imported torch gets on with the devices; None if it is none for CUDA.

    Args:
        devices: The compute capabilities of the devices that it may use.
    """
    torch = sys.modules.get("torch")
    flags = peek(peek(torch, "_C"), "_cuda_getArchFlags")
    if flags is None or peek(peek(torch, "version"), "cuda") is None:
        return None
    release = str(peek(torch, "__version__"))
    built = torch_of(release, str(flags() or "").split())
    return Situation(devices, built, copy_for(folder_of("torch")))


def findings_of(situation: Situation, default: int) -> list[Finding]:
    """Return what is to be said of a torch on its devices; nothing where all is fine.

    Args:
        situation: The torch and the devices.
        default: The device that the program uses unless it says otherwise: what is wrong with
            others only is not warned of.
    """
    found = []
    hopeless, lame = situation.with_verdict(CANNOT_RUN), situation.with_verdict(NO_JIT)
    if hopeless:
        cure = cure_for(list(hopeless.values()), 0, with_torch=are_wheels_known())
        loud = default in hopeless
        found.append(wording.cannot_run(situation.torch, hopeless, cure, loud=loud))
    nvrtc = situation.nvrtc
    if lame and nvrtc is not None and nvrtc.release is not None:
        devices = list(lame.values())
        better = nearest(
            copy
            for copy in installed_copies(nvrtc.name)
            if all(verdict(device, situation.torch, copy.release) == FINE for device in devices)
        )
        found.append(
            wording.no_jit(
                lame,
                nvrtc,
                sorted({asked_for(device, situation.torch, nvrtc.release) for device in devices}),
                sorted(KNOWN[nvrtc.release]),
                better,
                cure_for(devices, nvrtc.release[0], with_torch=are_wheels_known()),
                loud=default in lame,
            )
        )
    return found
