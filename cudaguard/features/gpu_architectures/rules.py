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
            "What torch compiles at run time (fusers of TorchScript, operators such as torch.prod) "
            "fails with 'nvrtc: error: invalid value for --gpu-architecture (-arch)' where its "
            "NVRTC does not know the GPU. torch uses the first NVRTC of that name in the process, "
            "and torch 2.6 and later load their own when they are imported: it must be there then."
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
            "Scripted models fail with 'nvrtc: error: invalid value for --gpu-architecture (-arch)'"
            " where NVRTC does not know the GPU. Without the fusers nothing is compiled for them; "
            "operators such as torch.prod are compiled all the same."
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
            "option 'gpu-name'\" where the ptxas in Triton does not know the GPU; another "
            "one is called where TRITON_PTXAS_PATH, or TRITON_PTXAS_BLACKWELL_PATH, names it."
        ),
        links=("https://github.com/triton-lang/triton/issues/8539",),
        verified="2026-11-20: triton 3.7.1 with ptxas 13.1 and 13.5 (assembling, no GPU)",
    ),
)
