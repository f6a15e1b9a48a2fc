"""Packages that ask for an order themselves."""

from __future__ import annotations

from cudaguard.model import Rule

RULES: tuple[Rule, ...] = (
    Rule(
        id="CG041",
        title="unsloth imported after transformers cannot patch it",
        watch=("transformers", "trl", "peft"),
        dist=("unsloth",),
        needs=("unsloth",),
        # Opt-in: unsloth replaces parts of all three, which a program without it must not see.
        grade="opt-in",
        why=(
            "unsloth patches transformers, trl and peft, and cannot patch what is already "
            "imported. Training may take more memory and time: 'Unsloth should be imported "
            "before trl, transformers, peft to ensure all optimizations are applied'."
        ),
        links=(
            "https://github.com/unslothai/unsloth/issues/2233",
            "https://github.com/hiyouga/LlamaFactory/issues/7175",
            "https://github.com/NVIDIA-NeMo/Safe-Synthesizer/issues/330",
        ),
    ),
    Rule(
        id="CG042",
        title="pymeshlab imported before weasyprint: Pango is not loaded",
        watch=("pymeshlab",),
        dist=("pymeshlab",),
        when={"platform": "linux", "dists": {"weasyprint": ""}},
        needs=("weasyprint",),
        grade="opt-in",
        why=(
            "pymeshlab loads its own copies of system libraries. The libraries that "
            "weasyprint opens were reported to fail with them. With weasyprint first both "
            "work."
        ),
        links=("https://github.com/cnr-isti-vclab/PyMeshLab/issues/444",),
    ),
    Rule(
        id="CG043",
        title="migraphx imported before torch on ROCm: torch fails to import",
        watch=("migraphx",),
        when={"platform": "linux", "dists": {"torch": ""}},
        needs=("torch",),
        grade="opt-in",
        why=(
            "migraphx loads the machine's ROCm libraries. torch, which has its own, was "
            "reported to fail with them. With torch first both work."
        ),
        links=("https://github.com/ROCm/torch_migraphx/pull/204",),
    ),
    Rule(
        id="CG066",
        title="Triton-XDNA imported after ROCm's LLVM crashes",
        watch=("triton",),
        dist=("triton-xdna",),
        when={"platform": "linux"},
        needs=("air._mlir_libs._mlir",),
        # Its backend imports mlir-air in any case, but opt-in until the crash was seen.
        grade="opt-in",
        why=(
            "'import triton' was reported to segfault, because mlir-air and the ROCm SDK each "
            "have an LLVM. With mlir-air imported first both work."
        ),
        links=(
            "https://github.com/amd/Triton-XDNA/issues/102",
            "https://github.com/amd/Triton-XDNA/pull/107",
        ),
    ),
)
