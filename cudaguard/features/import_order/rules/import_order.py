"""Packages that ask for an order themselves."""

from __future__ import annotations

from cudaguard.model import Rule

RULES: tuple[Rule, ...] = (
    Rule(
        id="CG011",
        title="isaacgym refuses to be imported after torch",
        watch=("torch",),
        dist=("isaacgym",),
        needs=("isaacgym",),
        grade="opt-in",
        why=(
            "isaacgym raises 'PyTorch was imported before isaacgym modules' once torch is there. "
            "Import isaacgym before torch and before every package that imports torch."
        ),
        links=(
            "https://github.com/PKU-MARL/DexterousHands/issues/1",
            "https://github.com/isaac-sim/IsaacGymEnvs/issues/175",
        ),
    ),
    Rule(
        id="CG012",
        title="isaacgym imported before pinocchio breaks pinocchio's lists of strings",
        watch=("isaacgym",),
        dist=("isaacgym",),
        when={"dists": {"pin": ""}},
        needs=("pinocchio",),
        grade="opt-in",
        why=(
            "isaacgym replaces the conversion of C++ lists of strings that pinocchio uses, and "
            "pinocchio fails if it comes second: pinocchio, then isaacgym, then torch."
        ),
        links=("https://github.com/dexsuite/dex-retargeting/issues/23",),
    ),
    Rule(
        id="CG041",
        title="unsloth imported after transformers cannot patch it",
        watch=("transformers", "trl", "peft"),
        dist=("unsloth",),
        needs=("unsloth",),
        # Opt-in: unsloth replaces parts of all three, which a program without it must not see.
        grade="opt-in",
        why=(
            "unsloth replaces parts of transformers, trl and peft; what was imported before it "
            "keeps the original parts: 'Unsloth should be imported before trl, transformers, peft "
            "to ensure all optimizations are applied', and training takes more memory and time."
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
            "pymeshlab maps its own copies of system libraries, and the libraries that weasyprint "
            "then opens by name were reported to fail against them; with weasyprint first both "
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
            "migraphx maps the machine's ROCm libraries, and torch, which has its own, was "
            "reported to break against them; with torch first both work."
        ),
        links=("https://github.com/ROCm/torch_migraphx/pull/204",),
    ),
    Rule(
        id="CG044",
        title="pyarrow 19 imported after torch 2.3 and tensorflow 2.15 crashes",
        watch=("torch", "tensorflow"),
        dist=("pyarrow>=19,<20",),
        when={
            "platform": "linux",
            "dists": {"torch": ">=2.3,<2.4", "tensorflow": ">=2.15,<2.16"},
        },
        needs=("pyarrow",),
        grade="opt-in",
        why=(
            "With pyarrow 19.0.1 imported after torch 2.3.0 and tensorflow 2.15.1 the process was "
            "reported to end in a segmentation fault; with pyarrow, or pandas, first it does not."
        ),
        links=("https://github.com/ray-project/ray/pull/60478",),
    ),
)
