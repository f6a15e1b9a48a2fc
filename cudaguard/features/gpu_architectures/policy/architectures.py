"""Tells whether torch runs on a GPU, and whether code can be compiled for it at run time."""

from __future__ import annotations

import re
from typing import NamedTuple

from cudaguard.features.gpu_architectures.architectures import (
    CAP,
    CAPPED_FROM,
    CAPPED_SINCE_TORCH,
    CAPPED_TO,
    KNOWN,
    NVRTC_WHEELS,
    RENAMED,
    TEGRA,
    TORCH_WHEELS,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Pair = tuple[int, int]  # a compute capability, or a release

FINE, CANNOT_RUN, NO_JIT, UNKNOWN = "fine", "cannot run", "no jit", "unknown"


class Torch(NamedTuple):
    """A torch that was built for CUDA.

    Args:
        release: As it says itself, ``2.6.0+cu124``.
        version: Its first two numbers; empty if it has none.
        flags: What it has code for, as in ``("sm_80", "compute_90")``; empty if not known.
    """

    release: str
    version: tuple[int, ...]
    flags: tuple[str, ...]


class Cure(NamedTuple):
    """What is to be installed for a GPU.

    Args:
        release: The first release of CUDA, of the major one that is used, whose NVRTC knows it;
            None if there is none.
        wheel: The distribution that has that NVRTC.
        torch: Which releases of torch have code for it, as pip takes it; empty if not known.
        cuda: The CUDA that the first of those is built with, or None.
    """

    release: Pair | None
    wheel: str
    torch: str
    cuda: Pair | None


_FLAG = re.compile(r"(sm|compute)_(\d+)(\d)([a-z]?)")


def architecture(device: Pair) -> int:
    """Return the number of a compute capability, 86 for (8, 6): ``sm_86``."""
    return device[0] * 10 + device[1]


def dotted(pair: Pair | None) -> str:
    """Return a release or a compute capability as it is written, ``12.8``."""
    return "?" if pair is None else f"{pair[0]}.{pair[1]}"


def torch_of(release: str, flags: Iterable[str]) -> Torch:
    """Return a torch by the version that it says, as in ``2.6.0+cu124``, and its architectures."""
    words = release.partition("+")[0].split(".")[:2]
    version = tuple(map(int, words)) if all(word.isdecimal() for word in words) else ()
    return Torch(release, version, tuple(flags))


def verdict(device: Pair, torch: Torch, nvrtc: Pair | None) -> str:
    """Return what works on a device.

    Args:
        device: Its compute capability.
        torch: The torch that is to use it.
        nvrtc: The release of the NVRTC that it will use, None if not known.

    Returns:
        ``CANNOT_RUN``: torch has no code for it. ``NO_JIT``: only what is compiled at run time
        fails. Else ``FINE``, or ``UNKNOWN`` where nobody knows what that NVRTC knows.
    """
    if torch.flags and not any(runs_on(flag, device) for flag in torch.flags):
        return CANNOT_RUN
    if nvrtc not in KNOWN:
        return UNKNOWN
    return FINE if asked_for(device, torch, nvrtc) in KNOWN[nvrtc] else NO_JIT


def asked_for(device: Pair, torch: Torch, nvrtc: Pair) -> int:
    """Return the architecture that torch asks NVRTC for."""
    capped = CAPPED_FROM <= nvrtc <= CAPPED_TO and torch.version >= CAPPED_SINCE_TORCH
    return min(architecture(device), CAP) if capped else architecture(device)


def helps(release: Pair | None, devices: Iterable[Pair], torch: Torch, now: Pair | None) -> bool:
    """Return True if another NVRTC helps: it knows the devices, and torch can use no other device.

    Where one of them works as it is nothing is to be changed: the code that it gets would be
    another compiler's.

    Args:
        release: Of that NVRTC.
        devices: Compute capabilities.
        torch: The torch that is to use them.
        now: Release of the NVRTC that it would use.
    """
    usable = [device for device in devices if verdict(device, torch, now) != CANNOT_RUN]
    return bool(usable) and all(
        verdict(device, torch, now) == NO_JIT and verdict(device, torch, release) == FINE
        for device in usable
    )


def cure_for(devices: Sequence[Pair], major: int, *, with_torch: bool = True) -> Cure:
    """Return what is to be installed for devices.

    Args:
        devices: Their compute capabilities, at least one.
        major: The major release of CUDA that is used.
        with_torch: False on machines for which torch's wheels have other code, or none for GPUs.
    """
    wanted = {architecture(device) for device in devices}
    releases = [r for r, known in KNOWN.items() if r[0] == major and wanted <= known]
    torch = _torch_for(devices[0]) if with_torch else ("", None)
    return Cure(min(releases, default=None), NVRTC_WHEELS.get(major, ""), *torch)


def _torch_for(device: Pair) -> tuple[str, Pair | None]:
    fitting = [
        index
        for index, (_, _, flags) in enumerate(TORCH_WHEELS)
        if any(runs_on(flag, device) for flag in flags)
    ]
    if not fitting:
        return "", None
    first, last = TORCH_WHEELS[fitting[0]], fitting[-1] + 1
    lower = f">={first[0]}" if fitting[0] else ""
    upper = f"<{TORCH_WHEELS[last][0]}" if last < len(TORCH_WHEELS) else ""
    return "torch" + ",".join(filter(None, (lower, upper))), first[1]


def runs_on(flag: str, device: Pair) -> bool:
    """Return True if code of one architecture runs on a device.

    Machine code runs on later minor versions of its major one, PTX on everything later; with the
    letter ``a`` both run on that very architecture, with others within its major version. Machine
    code of and for Jetson runs nowhere else.
    """
    match = _FLAG.fullmatch(flag)
    if match is None:
        return True  # of a kind that nobody here knows
    kind, letter = match[1], match[4]
    built = int(match[2]), int(match[3])
    built, device = RENAMED.get(built, built), RENAMED.get(device, device)
    if letter == "a" or (kind == "sm" and (built in TEGRA or device in TEGRA)):
        return built == device
    return built <= device and (built[0] == device[0] or (kind == "compute" and not letter))
