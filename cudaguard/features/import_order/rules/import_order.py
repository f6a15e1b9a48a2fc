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
    Rule(
        id="CG063",
        title="tensorflow 2.4 and older imported after torchvision crashes",
        watch=("torchvision",),
        dist=("tensorflow<2.5", "tensorflow-gpu<2.5"),
        when={"platform": "linux"},
        needs=("tensorflow",),
        grade="opt-in",
        why=(
            "With torchvision imported before tensorflow 2.4.1 the process was reported to end in "
            "a segmentation fault, or with 'File already exists in database' of protobuf; with "
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
            "pytorch_lightning imports parts of torch and of tensorflow in an order that was "
            "reported to end in a segmentation fault; torch, then tensorflow, then "
            "pytorch_lightning works. Import sorters cannot express that order."
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
            "With an OpenGL context of MuJoCo's there, the import of a torch from pip was reported "
            "to end the process with 'free(): invalid pointer'; with torch first both work."
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
        grade="opt-in",
        why=(
            "mlir-air, which Triton-XDNA uses, has an LLVM of its own. With that of a ROCm SDK in "
            "the process before it, 'import triton' ends in a segmentation fault; with mlir-air "
            "first both work. With a ROCm torch before both, enable rule CG067 as well."
        ),
        links=(
            "https://github.com/amd/Triton-XDNA/issues/102",
            "https://github.com/amd/Triton-XDNA/pull/107",
        ),
    ),
)
