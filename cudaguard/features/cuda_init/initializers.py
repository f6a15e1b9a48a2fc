"""Modules that are known to initialize CUDA, or to create a context, while they are imported.

Watched so that the one that does it can be named. Being listed says nothing bad of a module: most
do it in some versions only, and what is told is what was seen.
"""

from __future__ import annotations

# Those of which it was reported that a program was broken by it: late variables, forked workers,
# contexts on devices that are none of their business. Where it is seen again it is warned of.
REPORTED: dict[str, str] = {
    "cugraph": "https://github.com/rapidsai/cugraph/issues/3077",
    "deepspeed": "https://github.com/deepspeedai/DeepSpeed/issues/8078",
    "flash_attn": "https://github.com/pytorch/pytorch/issues/159641",
    "flashinfer": "https://github.com/flashinfer-ai/flashinfer/issues/4889",
    "quack": "https://github.com/Dao-AILab/quack/issues/85",
    "sam2": "https://github.com/facebookresearch/sam2/issues/616",
    "sglang": "https://github.com/sgl-project/sglang/issues/40201",
    "torch": "https://github.com/pytorch/pytorch/issues/80876",
    "torch_scatter": "https://github.com/rusty1s/pytorch_scatter/issues/209",
    "transformer_engine": "https://github.com/NVIDIA/TransformerEngine/issues/872",
    "vllm": "https://github.com/vllm-project/vllm/issues/8893",
    "xformers": "https://github.com/facebookresearch/xformers/issues/1030",
}

INITIALIZERS: tuple[str, ...] = (
    *REPORTED,
    "apex", "bitsandbytes", "causal_conv1d", "cucim", "cudf", "cuml", "cupy", "cuspatial",
    "detectron2", "dgl", "diff_gaussian_rasterization", "faiss", "fvdb", "gsplat", "horovod",
    "jax", "kaolin", "mamba_ssm", "mmcv", "numba.cuda", "nvdiffrast", "nvidia.dali", "onnxruntime",
    "open3d", "paddle", "pycuda.autoinit", "pycuda.autoprimaryctx", "pylibraft", "pytorch3d",
    "rmm", "spconv", "taichi", "tensorflow", "tensorrt", "tinycudann", "torch_cluster",
    "torch_sparse", "torchaudio", "torchvision", "triton", "unsloth", "warp",
    # Parts that are imported for themselves, after their package.
    "transformer_engine.jax", "transformer_engine.pytorch",
    # Where others must not have (see `expectations`).
    "accelerate.launchers", "distributed.comm.ucx", "distributed_ucxx.ucxx",
    "lightning.fabric.strategies.launchers.multiprocessing",
    "lightning_fabric.strategies.launchers.multiprocessing", "torch.cuda.memory",
)  # fmt: skip
