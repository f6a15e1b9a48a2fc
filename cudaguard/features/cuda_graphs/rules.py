"""CUDA graphs: outputs of compiled callables that later calls overwrite."""

from __future__ import annotations

from cudaguard.model import Rule

RULES: tuple[Rule, ...] = (
    # Opt-in: without CUDA graphs a model is slower, and copies take memory.
    Rule(
        id="CG027",
        title="torch.compile is seen",
        watch=("torch",),
        actions=({"record_compile_args": True},),
        grade="opt-in",
        why=(
            "Recording the arguments of torch.compile tells cudaguard.graph_safe whether a "
            "callable uses CUDA graphs. It can then compile the callable again without them."
        ),
        links=("https://github.com/pytorch/pytorch/issues/122192",),
    ),
    Rule(
        id="CG028",
        title="SAM2's compiled image encoder reads a tensor that was overwritten",
        watch=("torch",),
        actions=(
            {
                "disable_cuda_graphs": True,
                "target": "sam2.modeling.backbones.image_encoder.ImageEncoder",
            },
        ),
        grade="opt-in",
        why=(
            "With compile_image_encoder, SAM2 fills its position-encoding cache inside the "
            "compiled forward. The next call overwrites it: 'accessing tensor output of "
            "CUDAGraphs that has been overwritten'. Copying the outputs does not help."
        ),
        links=(
            "https://github.com/facebookresearch/sam2/issues/460",
            "https://github.com/facebookresearch/sam2/pull/486",
            "https://github.com/facebookresearch/sam2/issues/501",
        ),
    ),
    Rule(
        id="CG039",
        title="results that are held are overwritten by the next call",
        watch=("torch._inductor.config",),
        actions=({"copy_held_outputs": True, "target": "*"},),
        grade="opt-in",
        why=(
            "The next call of a callable that uses CUDA graphs overwrites its earlier "
            "results, mostly without an error. torch 2.14 and later can copy results that are"
            " still held, in the whole process."
        ),
        links=(
            "https://github.com/pytorch/pytorch/issues/122192",
            "https://github.com/pytorch/pytorch/pull/188078",
        ),
    ),
)
