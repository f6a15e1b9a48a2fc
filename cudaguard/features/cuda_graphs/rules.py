"""CUDA graphs: outputs of compiled callables that later calls overwrite."""

from __future__ import annotations

from cudaguard.core.rule import Rule
from cudaguard.core.table import Parameter, Verb, github

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
        why="With compile_image_encoder, SAM2 fills its position-encoding cache inside the "
        "compiled forward. The next call overwrites it: 'accessing tensor output of CUDAGraphs "
        "that has been overwritten'. Copying the outputs does not help.",
        links=github(
            "facebookresearch/sam2/issues/460 facebookresearch/sam2/pull/486 "
            "facebookresearch/sam2/issues/501"
        ),
    ),
)

VERBS = tuple(
    Verb(
        name,
        "switch",
        True,
        meaning,
        {"after": "functions:replace_compile"},
        (Parameter("target", "target", "pkg.models.Encoder"),),
        ("opt-in",),
    )
    for name, meaning in (
        ("disable_cuda_graphs", "Compile the target without CUDA graphs."),
        ("clone_outputs", "Return copies of what the compiled target returns."),
    )
)
CATEGORY = "GraphWarning"
KNOWN_ERRORS = "findings:EXPLAINER"
