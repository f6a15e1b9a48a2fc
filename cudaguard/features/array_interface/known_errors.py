"""What libraries say of an array that they do not take, and what it means."""

from __future__ import annotations

from cudaguard.core.known_errors import Explainer, KnownError

KNOWN = (
    KnownError(
        "CG880",
        "DALI does not take an array",
        (
            "returned a result with an exception set",
            "not a valid CUDA stream",
            "cannot be converted to TensorGPU",
        ),
        r"TensorGPU.{0,200}returned a result with an exception set|"
        r"Provided stream is not a valid CUDA stream|Object at position \d+ cannot be converted to "
        r"TensorGPU",
        "DALI does not take the __cuda_array_interface__ of this array. It probably has a stream "
        "None or 0, a NumPy integer, or a list.",
        'pass cudaguard.normalize(array, consumer="dali")',
        command="cudaguard run SCRIPT",
        unguarded="under cudaguard.install() rule CG019 does so",
        links=("https://github.com/NVIDIA/DALI/issues/5423",),
    ),
    KnownError(
        "CG728",
        "torch does not take the strides of an array",
        ("given array strides not a multiple",),
        r"given array strides not a multiple of the element byte size",
        "The array has strides that torch cannot have: no multiples of the size of an element.",
        "pass a copy without gaps: cupy.ascontiguousarray(array)",
        links=("https://github.com/cupy/cupy/issues/2589",),
    ),
    KnownError(
        "CG729",
        "a tensor that requires gradients exports no array",
        ("on Variable that requires grad",),
        r"Can't get __cuda_array_interface__ on Variable that requires grad",
        "torch exports no array interface of a tensor that requires gradients: another library "
        "would write past autograd.",
        "pass tensor.detach()",
        links=("https://github.com/numba/numba/issues/3093",),
    ),
)
EXPLAINER = Explainer(KNOWN)
