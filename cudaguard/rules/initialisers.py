"""Modules that are known to initialise CUDA, or to create a context, while they are imported.

Watched so that the one that does it can be named. Being listed says nothing bad of a module: most
do it in some versions only, and what is told is what was seen. The list comes from public reports,
among them NVIDIA/TransformerEngine#872, flashinfer-ai/flashinfer#4889, sgl-project/sglang#40201,
Dao-AILab/quack#85, rusty1s/pytorch_scatter#209, facebookresearch/xformers#1030,
deepspeedai/DeepSpeed#8078, rapidsai/cugraph#3077, pytorch/pytorch#159641.
"""

from __future__ import annotations

INITIALISERS: tuple[str, ...] = (
    "apex", "bitsandbytes", "causal_conv1d", "cucim", "cudf", "cugraph", "cuml", "cupy",
    "cuspatial", "deepspeed", "detectron2", "dgl", "diff_gaussian_rasterization",
    "faiss", "flash_attn", "flashinfer", "gsplat", "horovod", "jax", "kaolin", "mamba_ssm",
    "mmcv", "numba.cuda", "nvdiffrast", "nvidia.dali", "onnxruntime", "open3d", "pycuda.autoinit",
    "pycuda.autoprimaryctx", "pylibraft", "pytorch3d", "quack", "rmm", "sam2", "sglang", "spconv",
    "taichi", "tensorflow", "tensorrt", "tinycudann", "torch", "torch_cluster", "torch_scatter",
    "torch_sparse", "torchaudio", "torchvision", "transformer_engine", "triton", "unsloth",
    "vllm", "warp", "xformers",
)  # fmt: skip
