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
            "With the arguments of torch.compile known, cudaguard.graph_safe tells in all cases "
            "whether a callable uses CUDA graphs, and can compile it again without them."
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
            "With compile_image_encoder, SAM2 fills the cache of its position encoding inside the "
            "compiled forward, and the next call overwrites that memory: 'accessing "
            "tensor output of CUDAGraphs that has been overwritten'. Copies of the outputs do not "
            "help; without CUDA graphs for that encoder nothing is overwritten. Newer releases "
            "fill the cache before, for one image size."
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
            "A result of a callable that uses CUDA graphs is overwritten by its next calls, after "
            "the first ones without an error. torch 2.14 and later can copy what is still held "
            "then, in the whole process, if they are asked to before it is compiled."
        ),
        links=(
            "https://github.com/pytorch/pytorch/issues/122192",
            "https://github.com/pytorch/pytorch/pull/188078",
        ),
    ),
)
