"""GPUs that are newer than torch's NVRTC."""

from __future__ import annotations

from cudaguard.core.rule import Rule
from cudaguard.core.table import github

RULES: tuple[Rule, ...] = (
    Rule(
        id="CG033",
        title="torch's NVRTC does not know this GPU, and one that does is installed",
        watch=("torch",),
        when={"platform": "linux"},
        actions=({"preload_newer_nvrtc": True},),
        why="Kernels that torch compiles at run time fail with 'nvrtc: error: invalid value for "
        "--gpu-architecture (-arch)'. torch uses the first NVRTC in the process, so the newer one "
        "must be loaded before `import torch`.",
        links=github(
            "pytorch/pytorch/issues/87595 pytorch/pytorch/issues/145580 "
            "isaac-sim/IsaacLab/issues/5520"
        ),
        verified="2026-11-20: torch 2.8.0 with NVRTC 12.8 and 12.9, torch 2.13.0 with 13.0 and "
        "13.5 (compiling, no GPU)",
    ),
)

REPAIRS = {"preload_newer_nvrtc": {"before": "repair:preload_newer_nvrtc"}}
NEED_DRIVER = ("preload_newer_nvrtc",)  # elsewhere there is nothing to repair
CATEGORY = "ImportOrderWarning"
DETECTORS = {"detector:ArchitectureDetector": ("torch",)}
KNOWN_ERRORS = "checks:EXPLAINER"
