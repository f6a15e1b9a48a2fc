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
            "isaacgym raises 'PyTorch was imported before isaacgym modules'. Import it before"
            " torch and before every package that imports torch."
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
            "isaacgym replaces the conversion of C++ lists of strings that pinocchio uses, "
            "and pinocchio was reported to fail then. The order that works is pinocchio, "
            "isaacgym, torch."
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
            "The process was reported to segfault if pyarrow 19.0.1 is imported after torch "
            "2.3.0 and tensorflow 2.15.1. With pyarrow or pandas first it works."
        ),
        links=("https://github.com/ray-project/ray/pull/60478",),
    ),
    Rule(
        id="CG063",
        title="tensorflow 2.4 and older imported after torchvision crashes",
        watch=("torchvision",),
        dist=("tensorflow<2.5", "tensorflow-gpu<2.5"),
        when={"platform": "linux"},
        needs=("tensorflow",),
        grade="opt-in",
        why=(
            "The process was reported to segfault, or to fail with protobuf's 'File already "
            "exists in database', if torchvision is imported before tensorflow 2.4.1. With "
            "tensorflow first both work."
        ),
        links=(
            "https://github.com/tensorflow/tensorflow/issues/57669",
            "https://github.com/tensorflow/tensorflow/issues/48797",
        ),
    ),
    Rule(
        id="CG064",
        title="pytorch_lightning 1 imported before torch and tensorflow crashes",
        watch=("pytorch_lightning",),
        dist=("pytorch-lightning<2",),
        when={"platform": "linux", "dists": {"tensorflow": ""}},
        needs=("torch", "tensorflow"),
        grade="opt-in",
        why=(
            "pytorch_lightning 1 imports parts of torch and tensorflow in an order that was "
            "reported to segfault. The order that works is torch, tensorflow, "
            "pytorch_lightning. Import sorters cannot keep it."
        ),
        links=("https://github.com/GT4SD/gt4sd-core/pull/219",),
    ),
    Rule(
        id="CG065",
        title="torch imported after MuJoCo has an OpenGL context: 'free(): invalid pointer'",
        watch=("mujoco",),
        when={"platform": "linux", "dists": {"torch": "<2.1"}},
        needs=("torch",),
        grade="opt-in",
        why=(
            "After MuJoCo has created an OpenGL context, `import torch` was reported to end "
            "the process with 'free(): invalid pointer'. With torch first both work."
        ),
        links=(
            "https://github.com/Farama-Foundation/Gymnasium/pull/480",
            "https://github.com/pytorch/pytorch/issues/15294",
        ),
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
            "have an LLVM. With mlir-air imported first both work. With a ROCm torch, enable "
            "rule CG067 too."
        ),
        links=(
            "https://github.com/amd/Triton-XDNA/issues/102",
            "https://github.com/amd/Triton-XDNA/pull/107",
        ),
    ),
)
