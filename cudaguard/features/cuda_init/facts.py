"""Facts about libraries: which initialize CUDA, which expect it unused, what is read when.

Sources: CUDA programming guide, "CUDA Environment Variables"; torch's ``c10/cuda`` (CUDAFunctions,
CUDAAllocatorConfig), ``cuda/memory.py`` and ``torch/_inductor/config.py``; JAX, "GPU memory
allocation"; TensorFlow's ``gpu_device.cc``; CuPy's ``_environment.py``; accelerate's
``launchers.py``; Lightning's ``strategies/launchers/multiprocessing.py``; distributed's
``comm/ucx.py`` and dask-cuda's ``initialize.py``; pytorch/pytorch#159641, #104801, #92074,
jax-ml/jax#19267, axolotl-ai-cloud/axolotl#2183, google-deepmind/dm_control#335.
"""

from __future__ import annotations

import sys

from cudaguard.core.table import github
from cudaguard.model import TYPE_CHECKING, NamedTuple, Record
from cudaguard.system import peek

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Arguments = tuple[Any, ...]
    Keywords = dict[str, Any]

OURSELVES = "cudaguard"  # as the actor of a change


class Change(Record):
    """One thing that happened to the driver of this process."""

    kind: str  # initialized, or context
    device: int  # ordinal of the one that got a context; -1 for initialized
    actor: str  # the module that was being imported, or that loaded a library; empty if unwatched
    how: str  # import, load, request (of our own), before (we could look); empty without an actor
    where: str  # file:line of the user's code behind it; empty with the actor
    pid: int


# --- When variables are read ----------------------------------------------------------------------


class Moment(NamedTuple):
    """When a variable is read for good."""

    text: str  # as in "torch is imported"
    module: str = ""  # that reads it then; empty where the driver does
    # Returns True of that module, once it is imported, if it has read the variable.
    is_past: Callable[[Any], bool] = lambda module: module is not None
    setting: str = ""  # part of the value that is read then; empty for all of it

    def has_come(self) -> bool:
        """Return True if the module has read its variables."""
        module = sys.modules.get(self.module) if self.module else None
        return module is not None and self.is_past(module)


def torch_release(torch: Any) -> tuple[int, ...]:
    """Return the first two numbers of the version of a torch for CUDA; empty for any other."""
    words = str(peek(torch, "__version__")).split("+")[0].split(".")[:2]
    is_known = all(word.isdecimal() for word in words)
    has_cuda = peek(peek(torch, "version"), "cuda") is not None
    return tuple(map(int, words)) if has_cuda and is_known else ()


CUDA_INIT = Moment("CUDA is initialized")
# All else is read when the allocator is first used: seen with torch 2.11 and 2.13.
_BACKEND = Moment(
    "torch is imported", "torch", lambda torch: torch_release(torch) >= (2, 0), "backend:"
)
_TORCH_CUDA = Moment(
    "torch's CUDA is initialized", "torch.cuda", lambda cuda: peek(cuda, "_initialized") is True
)
_INDUCTOR = Moment("torch._inductor.config is imported", "torch._inductor.config")
# To a backend for CPUs these variables mean nothing.
_JAX = Moment(
    "JAX's backend is created",
    "jax._src.xla_bridge",
    lambda bridge: not {"cuda", "gpu", "rocm"}.isdisjoint(peek(bridge, "_backends") or ()),
)
_TENSORFLOW = Moment(
    "TensorFlow is initialized",
    "tensorflow.python.eager.context",
    lambda eager: peek(peek(eager, "_context"), "_initialized") is True,
)
_LATER = ("dm_control._render", "gymnasium.envs.mujoco.mujoco_rendering")  # read it
_MUJOCO = Moment("mujoco is imported", "mujoco", lambda _: sys.modules.keys().isdisjoint(_LATER))
_ALLOCATOR = (_BACKEND, _TORCH_CUDA)

# Variable -> the moments at which it is read, the earliest first. The short list: setting one of
# these too late is a fault that users make and cannot see.
READ_AT: dict[str, tuple[Moment, ...]] = {
    "CUDA_VISIBLE_DEVICES": (CUDA_INIT,),
    "CUDA_DEVICE_ORDER": (CUDA_INIT,),
    "PYTORCH_CUDA_ALLOC_CONF": _ALLOCATOR,
    "PYTORCH_ALLOC_CONF": _ALLOCATOR,
    "PYTORCH_NO_CUDA_MEMORY_CACHING": (_TORCH_CUDA,),
    "TORCHINDUCTOR_CUDAGRAPHS": (_INDUCTOR,),
    "XLA_PYTHON_CLIENT_PREALLOCATE": (_JAX,),
    "XLA_PYTHON_CLIENT_MEM_FRACTION": (_JAX,),
    "XLA_PYTHON_CLIENT_ALLOCATOR": (_JAX,),
    "XLA_FLAGS": (_JAX,),
    "TF_FORCE_GPU_ALLOW_GROWTH": (_TENSORFLOW,),
    "MUJOCO_GL": (_MUJOCO,),
    **{
        variable: (Moment(f"{module} is imported", module),)
        for module, variable in (
            *(("jax", "JAX_PLATFORMS"), ("jax", "JAX_ENABLE_X64"), ("dgl", "DGLBACKEND")),
            *(("cupy", "CUPY_CUDA_ARRAY_INTERFACE_SYNC"), ("numba.cuda", "NUMBA_ENABLE_CUDASIM")),
            ("torch.jit", "PYTORCH_JIT"),
        )
    },
}
# Whose variables are looked at from their import on.
CALLERS = ("cuda.bindings.driver", "cuda.bindings.runtime", "pycuda.driver")  # of the driver
READERS = frozenset({"jax", "tensorflow", "cupy", "numba.cuda", "dgl", *CALLERS})

# --- Who expects that nobody has used CUDA --------------------------------------------------------


class Expectation(NamedTuple):
    """A function that is called where CUDA should not have been used yet.

    There a library starts processes that are to use CUDA themselves, finds out that it is too late,
    or sets up what CUDA in use has fixed. None of them can say who it was that used CUDA first.
    """

    module: str
    function: str
    does: str  # what the library does or finds there, after its name
    consequence: str  # where CUDA has been used
    links: tuple[str, ...]  # reports of programs that broke there
    # Returns False for calls of it to which CUDA does not matter.
    is_meant: Callable[[Arguments, Keywords], bool] = lambda *_: True
    remedy: str = ""  # if it is another one than for most


def _are_several(arguments: Arguments, keywords: Keywords) -> bool:
    """Return True if accelerate is asked for more than one process, which it forks."""
    number = keywords.get("num_processes", arguments[2] if len(arguments) > 2 else None)
    return isinstance(number, int) and number > 1


_FORKED = (
    "forks workers that use CUDA",
    "It refuses, or CUDA fails in the workers: 'Cannot re-initialize CUDA in forked subprocess'.",
)
_FOUND = (
    "found a CUDA context that it had not created",
    "The worker keeps memory on that device, and may compute there instead of on its own.",
    github("rapidsai/dask-cuda/issues/719 rapidsai/dask-cuda/issues/867"),
)
EXPECTATIONS = (
    Expectation(
        "accelerate.launchers",
        "notebook_launcher",
        *_FORKED,
        github("huggingface/accelerate/issues/1293 huggingface/accelerate/issues/1807"),
        _are_several,
    ),
    *(
        Expectation(
            f"{package}.strategies.launchers.multiprocessing",
            "_check_bad_cuda_fork",
            *_FORKED,
            github(
                "Lightning-AI/pytorch-lightning/issues/21389 "
                "Lightning-AI/pytorch-lightning/issues/18728"
            ),
        )
        for package in ("lightning.fabric", "lightning_fabric")
    ),
    *(
        Expectation(module, function, *_FOUND)
        for module in ("distributed.comm.ucx", "distributed_ucxx.ucxx")
        for function in ("_warn_existing_cuda_context", "_warn_cuda_context_wrong_device")
    ),
    Expectation(
        "torch.cuda.memory",
        "change_current_allocator",
        "is asked for another allocator",
        "Torch refuses it: 'Cannot swap an already initialized allocator'.",
        github("openvdb/fvdb-core/issues/105 pytorch/pytorch/issues/140687"),
        lambda *_: _TORCH_CUDA.has_come(),
        "call change_current_allocator() before that, right after `import torch`",
    ),
)
EXPECTING = tuple(dict.fromkeys(expectation.module for expectation in EXPECTATIONS))

# --- Who initializes CUDA -------------------------------------------------------------------------

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
    *CALLERS,
)  # fmt: skip
