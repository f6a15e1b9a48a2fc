"""GPUs that are newer than the compilers which torch and Triton bring."""

from __future__ import annotations

from cudaguard.model import Rule

RULES: tuple[Rule, ...] = (
    Rule(
        id="CG033",
        title="torch's NVRTC does not know this GPU, and one that does is installed",
        watch=("torch",),
        when={"platform": "linux"},
        actions=({"preload_newer_nvrtc": True},),
        why=(
            "Kernels that torch compiles at run time fail with 'nvrtc: error: invalid value "
            "for --gpu-architecture (-arch)'. torch uses the first NVRTC in the process, so "
            "the newer one must be loaded before `import torch`."
        ),
        links=(
            "https://github.com/pytorch/pytorch/issues/87595",
            "https://github.com/pytorch/pytorch/issues/145580",
            "https://github.com/isaac-sim/IsaacLab/issues/5520",
        ),
        verified=(
            "2026-11-20: torch 2.8.0 with NVRTC 12.8 and 12.9, torch 2.13.0 with 13.0 and 13.5 "
            "(compiling, no GPU)"
        ),
    ),
    # Opt-in: without them scripted models run slower.
    Rule(
        id="CG034",
        title="the fusers of TorchScript compile for a GPU that NVRTC does not know",
        watch=("torch",),
        actions=({"disable_fusers": True},),
        grade="opt-in",
        why=(
            "Scripted models fail with 'nvrtc: error: invalid value for --gpu-architecture "
            "(-arch)'. Without the fusers their kernels are not compiled at run time. "
            "Operators such as torch.prod still are."
        ),
        links=("https://github.com/pytorch/pytorch/issues/87595",),
    ),
    # Opt-in: it has Triton call a program that is not its own.
    Rule(
        id="CG038",
        title="Triton's ptxas does not know this GPU, and one that does is installed",
        watch=("triton",),
        dist=("triton>=3.3",),
        when={"platform": "linux"},
        actions=({"use_newer_ptxas": True},),
        grade="opt-in",
        why=(
            "Every Triton kernel fails with \"ptxas fatal: Value 'sm_121a' is not defined for "
            "option 'gpu-name'\". Triton calls another ptxas if TRITON_PTXAS_PATH or "
            "TRITON_PTXAS_BLACKWELL_PATH names one."
        ),
        links=("https://github.com/triton-lang/triton/issues/8539",),
        verified="2026-11-20: triton 3.7.1 with ptxas 13.1 and 13.5 (assembling, no GPU)",
    ),
)
