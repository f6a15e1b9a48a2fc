"""Arrays with ``__cuda_array_interface__`` that one library does not take from another."""

from __future__ import annotations

from cudaguard.core.rule import Rule
from cudaguard.core.table import Parameter, Verb, github

_INTERFACE = "https://nvidia.github.io/numba-cuda/user/cuda_array_interface.html"

RULES: tuple[Rule, ...] = (
    Rule(
        id="CG019",
        title="DALI refuses or misreads arrays of other libraries",
        watch=("nvidia.dali.backend",),
        dist=("nvidia-dali-cuda110", "nvidia-dali-cuda120", "nvidia-dali-cuda130"),
        actions=(
            {"normalize_argument": "TensorGPU.__init__", "parameter": "object"},
            {"normalize_argument": "TensorListGPU.__init__", "parameter": "object"},
        ),
        why="DALI 1.32 to 1.36 refuses arrays whose stream is None, as PyCUDA's always is. DALI "
        "also refuses NumPy integers and lists that others accept, and misreads booleans. "
        "cudaguard passes the same bytes in a form DALI reads.",
        links=github("NVIDIA/DALI/issues/5423 NVIDIA/DALI/pull/5425"),
        verified="2026-11-20: nvidia-dali-cuda120 1.35.0 and 2.4.0, without a GPU",
    ),
    Rule(
        id="CG020",
        title="numba exports the stream 0, which the array interface forbids",
        watch=("numba.cuda.cudadrv.devicearray",),
        dist=("numba-cuda", "numba"),
        actions=({"fix_array_interface": "DeviceNDArrayBase"},),
        why="Arrays on numba's default stream export stream 0. DALI, JAX, nvImageCodec and "
        "cuda.core refuse it, some with a bare AssertionError. numba means the legacy default "
        "stream, which is 1.",
        links=(_INTERFACE, "https://github.com/NVIDIA/DALI/pull/5425"),
        verified="2026-11-20: numba-cuda 0.30.4 with cuda.core 1.2.2, on a stand-in for the driver",
    ),
)

VERBS = (
    Verb("normalize_argument", "function", "Image.__init__",
      "Pass the array given as first argument through cudaguard.normalize.",
      {"after": "repair:replace_attributes"}, (Parameter("parameter", "parameter", "buffer"),)),
    Verb("fix_array_interface", "class", "DeviceNDArray",
      "Correct the __cuda_array_interface__ that a class exports.",
      {"after": "repair:replace_attributes"}),
)  # fmt: skip
CATEGORY = "ArrayInterfaceWarning"
