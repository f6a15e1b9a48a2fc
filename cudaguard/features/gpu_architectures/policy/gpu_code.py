"""Tells whether the GPU code of a library runs on a GPU."""

from __future__ import annotations

import re
from typing import NamedTuple

from cudaguard.features.gpu_architectures.policy.architectures import runs_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudaguard.elf.fat_binaries import GpuCode

    Pair = tuple[int, int]  # a compute capability, or a release

_GPU = re.compile(r"(?:(?:sm_|compute_)?(\d{1,2})(\d)[af]?|(\d{1,2})\.(\d))")
_OLDEST, _NEWEST = 3, 29  # major versions of compute capability
_PTX_OF_CUDA_12 = 8
_AFTER_12_6 = 6  # PTX 8.5 is of CUDA 12.5 and 12.6, PTX 8.6 of CUDA 12.7, 8.7 of 12.8 ...


class Verdict(NamedTuple):
    """Whether the GPU code of a library runs on a device.

    Args:
        ok: True, False, or None where that cannot be said.
        by: The architecture whose code runs there, as in ``sm_80`` or ``compute_80``: that is PTX,
            which the driver compiles at the first use. Empty where `ok` is not True.
        lacking: How many parts of the library have no code for the device, where others do.
    """

    ok: bool | None
    by: str = ""
    lacking: int = 0


def device_of(text: str) -> Pair | None:
    """Return the compute capability that ``sm_90``, ``90`` or ``9.0`` means; None for nonsense."""
    match = _GPU.fullmatch(text.strip().lower())
    if match is None:
        return None
    device = int(match[1] or match[3]), int(match[2] or match[4])
    return device if _OLDEST <= device[0] <= _NEWEST else None


def verdict(device: Pair, code: GpuCode) -> Verdict:
    """Return whether the code of a library runs on a device.

    A library whose parts are for different GPUs is taken for one that knows which of them to call.

    Args:
        device: Its compute capability.
        code: What the library has, not nothing.
    """
    by = best(code.architectures, device)
    if not by:
        return Verdict(None if code.has_more else False)
    lacking = 0 if code.has_more else sum(not best(part, device) for part in code.parts)
    return Verdict(True, by, lacking)


def best(architectures: Iterable[str], device: Pair) -> str:
    """Return the architecture whose code a device would run; empty if there is none."""
    fitting = [one for one in architectures if runs_on(one, device)]
    return max(fitting, key=_preferred, default="")


def _preferred(architecture: str) -> tuple[bool, int]:
    """Machine code comes before PTX, and the newest of either first."""
    kind, _, number = architecture.partition("_")
    return kind == "sm", int(number.rstrip("af"))


def cuda_of(ptx: Pair) -> Pair:
    """Return the release of CUDA that a driver has to support to compile PTX of a version.

    Source: PTX ISA, "Release Notes": 7.x came with CUDA 11.x, 9.x with CUDA 13.x.
    """
    major, minor = ptx
    skipped = major == _PTX_OF_CUDA_12 and minor >= _AFTER_12_6
    return major + 4, minor + skipped
