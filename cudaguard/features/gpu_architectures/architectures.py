"""Which GPU architectures NVRTC knows, and which of them torch has code for and asks for.

Data only. An architecture is a number here: 86 is ``sm_86`` and ``compute_86``, of compute
capability 8.6. Sources: what ``nvrtcGetSupportedArchs`` answers in NVIDIA's wheels from 11.7 on;
before that CUDA's release notes. What torch asks for: pytorch/pytorch#48151, #87595, #87611,
#87618.
"""

from __future__ import annotations

_CUDA_11_1 = frozenset((35, 37, 50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86))
_CUDA_11_4 = _CUDA_11_1 | {87}
_CUDA_12_0 = (_CUDA_11_4 | {89, 90}) - {35, 37}
_CUDA_12_8 = _CUDA_12_0 | {100, 101, 120}
_CUDA_13_0 = frozenset((75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121))

# Release of CUDA -> what its NVRTC compiles for.
KNOWN: dict[tuple[int, int], frozenset[int]] = {
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

# Releases of torch on PyPI, each up to the next one, the CUDA they are built with, and what they
# have code for: read from the wheels of 2.0.1, 2.1.2, 2.4.1, 2.5.1 to 2.7.1, 2.8.0 to 2.12.0, for
# x86-64.
TORCH_WHEELS: tuple[tuple[str, tuple[int, int], tuple[str, ...]], ...] = (
    ("2.0.1", (11, 7), ("sm_37", "sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86")),
    ("2.1.2", (12, 1), ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")),
    ("2.5.1", (12, 4), ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")),
    ("2.7.1", (12, 6), ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")),
    ("2.8.0", (12, 8), ("sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")),
    ("2.11.0", (13, 0), ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")),
)

# Major release of CUDA -> the distribution that has its NVRTC.
NVRTC_WHEELS = {
    11: "nvidia-cuda-nvrtc-cu11",
    12: "nvidia-cuda-nvrtc-cu12",
    13: "nvidia-cuda-nvrtc",
}

# Integrated GPUs (Jetson): machine code for others does not run on them, nor theirs on others. The
# last one is 10.1 to CUDA 12. Source: CUDA programming guide, "Binary Compatibility"; torch 2.13,
# ``torch/cuda/__init__.py`` (``DEVICE_REQUIREMENT``).
TEGRA = ((3, 2), (5, 3), (6, 2), (7, 2), (8, 7), (11, 0))
RENAMED = {(10, 1): (11, 0)}
