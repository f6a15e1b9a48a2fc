"""What is known of libraries: which initialize CUDA, and when each reads its variables for good.

Sources: CUDA programming guide, "CUDA Environment Variables"; torch's ``c10/cuda`` (CUDAFunctions,
CUDAAllocatorConfig) and ``torch/_inductor/config.py``; JAX, "GPU memory allocation";
TensorFlow's ``gpu_device.cc``; CuPy's ``_environment.py``; pytorch/pytorch#159641, #104801,
#92074, jax-ml/jax#19267, axolotl-ai-cloud/axolotl#2183.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from cudaguard.system.modules import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Moment(NamedTuple):
    """When a variable is read for good.

    Args:
        text: The moment, as in ``torch is imported``.
        module: The module that reads it then; empty where the moment is an event.
        is_past: Returns True of that module, once it is imported, if it has read the variable.
    """

    text: str
    module: str = ""
    is_past: Callable[[Any], bool] = lambda module: module is not None

    def has_come(self) -> bool:
        """Return True if the module has read its variables."""
        module = sys.modules.get(self.module) if self.module else None
        return module is not None and self.is_past(module)


def _has_gpus(bridge: Any) -> bool:
    """Return True if JAX has made a backend for GPUs: to others these variables mean nothing."""
    return any(name in (peek(bridge, "_backends") or ()) for name in ("cuda", "gpu", "rocm"))


def _is_started(eager: Any) -> bool:
    return peek(peek(eager, "_context"), "_initialized") is True


def _has_cuda(cuda: Any) -> bool:
    return peek(cuda, "_initialized") is True


DRIVER = Moment("CUDA is initialized")
TORCH = Moment("torch is imported")
_TORCH_CUDA = Moment("torch's CUDA is initialized", "torch.cuda", _has_cuda)
_INDUCTOR = Moment("torch._inductor.config is imported", "torch._inductor.config")
_JAX = Moment("JAX's backend is created", "jax._src.xla_bridge", _has_gpus)
_JAX_IMPORT = Moment("jax is imported", "jax")
_TENSORFLOW = Moment("TensorFlow is initialized", "tensorflow.python.eager.context", _is_started)
_CUPY = Moment("cupy is imported", "cupy")

# The short list: setting one of these too late is a fault that users make and cannot see.
LATCHES: dict[str, Moment] = {
    "CUDA_VISIBLE_DEVICES": DRIVER,
    "CUDA_DEVICE_ORDER": DRIVER,
    "PYTORCH_CUDA_ALLOC_CONF": TORCH,
    "PYTORCH_ALLOC_CONF": TORCH,
    "PYTORCH_NO_CUDA_MEMORY_CACHING": _TORCH_CUDA,
    "TORCHINDUCTOR_CUDAGRAPHS": _INDUCTOR,
    "XLA_PYTHON_CLIENT_PREALLOCATE": _JAX,
    "XLA_PYTHON_CLIENT_MEM_FRACTION": _JAX,
    "XLA_PYTHON_CLIENT_ALLOCATOR": _JAX,
    "JAX_PLATFORMS": _JAX_IMPORT,
    "TF_FORCE_GPU_ALLOW_GROWTH": _TENSORFLOW,
    "CUPY_CUDA_ARRAY_INTERFACE_SYNC": _CUPY,
}
# Before torch 2.11 its allocator reads them when CUDA is first used.
OLDER_TORCH = {name: _TORCH_CUDA for name, moment in LATCHES.items() if moment is TORCH}
BACKEND = "backend:"  # a setting of theirs, which torch 2.0 and later reads at its import
# Whose variables are looked at from their import on.
READERS = frozenset({"jax", "tensorflow", "cupy"})

# Modules that are known to initialize CUDA, or to create a context, while they are imported.
# Watched so that the one that does it can be named. Being listed says nothing bad of a module: most
# do it in some versions only, and what is told is what was seen.
#
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
