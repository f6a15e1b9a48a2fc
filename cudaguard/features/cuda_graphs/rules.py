"""CUDA graphs: outputs of compiled callables that later calls overwrite."""

from __future__ import annotations

from cudaguard.model import Rule

RULES: tuple[Rule, ...] = (
    # Opt-in: without CUDA graphs a model is slower.
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
)
