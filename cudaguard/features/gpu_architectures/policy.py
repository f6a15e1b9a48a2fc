"""GPUs that torch, its NVRTC and the GPU code of a library can run on.

An architecture is a number here: 86 is ``sm_86`` and ``compute_86``, of compute capability 8.6.
Sources: what ``nvrtcGetSupportedArchs`` answers in NVIDIA's wheels from 11.7 on; before that
CUDA's release notes. What torch asks for: pytorch/pytorch#48151, #87595, #87611, #87618.
"""

from __future__ import annotations

import re

from cudaguard.files import os
from cudaguard.model import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudaguard.elf.library_facts import GpuCode

    Pair = tuple[int, int]  # a compute capability, or a release

_CUDA_11_1 = frozenset((35, 37, 50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86))
_CUDA_11_4 = _CUDA_11_1 | {87}
_CUDA_12_0 = (_CUDA_11_4 | {89, 90}) - {35, 37}
_CUDA_12_8 = _CUDA_12_0 | {100, 101, 120}
_CUDA_13_0 = frozenset((75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121))

# Release of CUDA -> what its NVRTC compiles for.
TARGETS: dict[tuple[int, int], frozenset[int]] = {
    **dict.fromkeys(((11, 1), (11, 2), (11, 3)), _CUDA_11_1),
    **dict.fromkeys(((11, 4), (11, 5), (11, 6), (11, 7)), _CUDA_11_4),
    (11, 8): _CUDA_11_4 | {89, 90},
    **dict.fromkeys(((12, minor) for minor in range(7)), _CUDA_12_0),
    (12, 8): _CUDA_12_8,
    (12, 9): _CUDA_12_8 | {103, 121},
    **dict.fromkeys(((13, minor) for minor in range(4)), _CUDA_13_0),
    **dict.fromkeys(((13, 4), (13, 5)), _CUDA_13_0 | {107}),
}

# Where the NVRTC of the process is one of these, torch from a release on asks for no more than the
# architecture given, as PTX; from CUDA 11.8 on, and in older releases, for that of the device.
CAPPED_FROM, CAPPED_TO = (11, 1), (11, 7)
CAP, CAPPED_SINCE_TORCH = 86, (1, 13)

# Releases of torch on PyPI, each up to the next one -> what they have code for: read from the
# wheels of 2.0.1, 2.1.2, 2.4.1, 2.5.1 to 2.7.1, 2.8.0 to 2.12.0, for x86-64.
TORCH_WHEELS = {
    "2.0.1": ("sm_37", "sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86"),
    "2.1.2": ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"),
    "2.8.0": ("sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"),
    "2.11.0": ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"),
}

# Major release of CUDA -> the distribution that has its NVRTC.
NVRTC_WHEELS = {11: "nvidia-cuda-nvrtc-cu11", 12: "nvidia-cuda-nvrtc-cu12", 13: "nvidia-cuda-nvrtc"}

# Integrated GPUs (Jetson): machine code for others does not run on them, nor theirs on others. The
# last one is 10.1 to CUDA 12. Source: CUDA programming guide, "Binary Compatibility"; torch 2.13,
# ``torch/cuda/__init__.py`` (``DEVICE_REQUIREMENT``).
TEGRA = ((3, 2), (5, 3), (6, 2), (7, 2), (8, 7), (11, 0))
RENAMED = {(10, 1): (11, 0)}

_FLAG = re.compile(r"(sm|compute)_(\d+)(\d)([a-z]?)")
_GPU = re.compile(r"(?:(?:sm_|compute_)?(\d{1,2})(\d)[af]?|(\d{1,2})\.(\d))")
_OLDEST, _NEWEST = 3, 29  # major versions of compute capability


class Torch(NamedTuple):
    """A torch that was built for CUDA."""

    release: str  # as it says itself, 2.6.0+cu124
    flags: tuple[str, ...]  # what it has code for: sm_80, compute_90; empty if not known


class Nvrtc(NamedTuple):
    """A copy of NVRTC."""

    path: str
    name: str  # what it is asked for by: ``libnvrtc.so.12``
    # The release of CUDA that it belongs to, as in (12, 8); None if not known
    release: tuple[int, int] | None

    def with_builtins(self) -> tuple[str, ...]:
        """Return its file, and the library beside it that it opens when it compiles.

        That of CUDA 13.0's wheel does not look there, and fails unless somebody has opened it.
        """
        major, minor = self.release or (0, 0)
        builtins = os.path.join(os.path.dirname(self.path), f"libnvrtc-builtins.so.{major}.{minor}")
        return tuple(filter(os.path.exists, (self.path, builtins)))


def architecture(device: Pair) -> int:
    """Return the number of a compute capability, 86 for (8, 6): ``sm_86``."""
    return device[0] * 10 + device[1]


def dotted(pair: Pair | None) -> str:
    """Return a release or a compute capability as it is written, ``12.8``."""
    return "?" if pair is None else f"{pair[0]}.{pair[1]}"


# --- torch and its NVRTC on a device --------------------------------------------------------------


def has_code(torch: Torch, device: Pair) -> bool:
    """Return True if torch has code for a device, or does not say what it has code for."""
    return not torch.flags or any(runs_on(flag, device) for flag in torch.flags)


def can_compile(torch: Torch, nvrtc: Pair | None, device: Pair) -> bool:
    """Return True if what torch compiles at run time works on a device, or if that is not known."""
    return nvrtc not in TARGETS or asked_for(device, torch, nvrtc) in TARGETS[nvrtc]


def asked_for(device: Pair, torch: Torch, nvrtc: Pair) -> int:
    """Return the architecture that torch asks NVRTC for."""
    words = torch.release.partition("+")[0].split(".")[:2]
    version = tuple(map(int, words)) if all(word.isdecimal() for word in words) else ()
    capped = CAPPED_FROM <= nvrtc <= CAPPED_TO and version >= CAPPED_SINCE_TORCH
    return min(architecture(device), CAP) if capped else architecture(device)


def torch_for(device: Pair) -> str:
    """Return which releases of torch on PyPI have code for a device, as pip takes it; else empty.

    Those for x86-64 Linux: others have other code, or none for GPUs.
    """
    releases = list(TORCH_WHEELS)
    fitting = [r for r in releases if any(runs_on(flag, device) for flag in TORCH_WHEELS[r])]
    if not fitting:
        return ""
    lower = f">={fitting[0]}" if fitting[0] != releases[0] else ""
    upper = releases[releases.index(fitting[-1]) + 1 :][:1]
    return "torch" + ",".join(filter(None, (lower, *(f"<{release}" for release in upper))))


def nvrtc_for(devices: Iterable[Pair], major: int) -> str:
    """Return the first NVRTC of a major release of CUDA that knows devices, as pip takes it.

    Empty if there is none.
    """
    wanted = {architecture(device) for device in devices}
    releases = [r for r, known in TARGETS.items() if r[0] == major and wanted <= known]
    return f"{NVRTC_WHEELS[major]}=={dotted(min(releases))}.*" if releases else ""


def runs_on(flag: str, device: Pair) -> bool:
    """Return True if code of one architecture runs on a device.

    Machine code runs on later minor versions of its major one, PTX on everything later; with the
    letter ``a`` both run on that very architecture, with others within its major version. Machine
    code of and for Jetson runs nowhere else.
    """
    if (match := _FLAG.fullmatch(flag)) is None:
        return True  # of a kind that nobody here knows
    kind, letter = match[1], match[4]
    built = int(match[2]), int(match[3])
    built, device = RENAMED.get(built, built), RENAMED.get(device, device)
    if letter == "a" or (kind == "sm" and (built in TEGRA or device in TEGRA)):
        return built == device
    return built <= device and (built[0] == device[0] or (kind == "compute" and not letter))


# --- The GPU code of a library on a device --------------------------------------------------------


def device_of(text: str) -> Pair | None:
    """Return the compute capability that ``sm_90``, ``90`` or ``9.0`` means; None for nonsense."""
    if (match := _GPU.fullmatch(text.strip().lower())) is None:
        return None
    device = int(match[1] or match[3]), int(match[2] or match[4])
    return device if _OLDEST <= device[0] <= _NEWEST else None


def code_for(device: Pair, code: GpuCode) -> str | None:
    """Return the architecture whose code a device would run: machine code before PTX.

    Empty if there is none, None if that cannot be said.
    """
    fitting = [flag for flag in code.architectures if runs_on(flag, device)]
    machine_code = [flag for flag in fitting if flag.startswith("sm")]
    # The newest of either comes last.
    return next(reversed(machine_code or fitting), None if code.has_more else "")


def lack_code(codes: Iterable[GpuCode], device: Pair) -> bool:
    """Return True if none of these, of which at least one is for GPUs, can serve a device."""
    return {code_for(device, code) for code in codes if code.architectures} == {""}
