"""Libraries that packages bring copies of, and what it means if two files of one are in a process.

The loader goes by the name that a library gives itself (its soname): the first file of a name
that is mapped serves whoever asks for that name later. What wheels bundle mostly has a name of
its own (``libgomp-a34b3233.so.1.0.0``), and then each package has the copy that it was tested with.
"""

from __future__ import annotations

from cudaguard.model import KW_ONLY, Record

_HEX = frozenset("0123456789abcdef")
_MARK = 8  # digits that auditwheel puts into a name


class Runtime(Record):
    """One library of which there should be one.

    Args:
        title: What it is called in a message.
        danger: What happens to those who get an older copy than they were built for.
        wheel: The middle of the name of NVIDIA's package that has it, ``nvidia-<wheel>-cu12``.
        part_of: The set whose parts have to be of one release, if there is one.
        rival: Libraries with the same word here abort or crash beside one another, whatever their
            names are.
    """

    title: str
    danger: str = "functions can be missing, or behave as in the older version"
    _: KW_ONLY
    wheel: str = ""
    part_of: str = ""
    rival: str = ""


# By the name of the file up to ".so", without what auditwheel has put in.
# Those whose symbols have versions, or whose releases have names of their own, are not here: the
# loader refuses a copy that is too old (the C++ runtime, libgomp, LLVM, protobuf, FFmpeg).
RUNTIMES: dict[str, Runtime] = {
    "libcudart": Runtime("the CUDA runtime", wheel="cuda_runtime"),
    "libcublas": Runtime("cuBLAS", wheel="cublas", part_of="cublas"),
    "libcublasLt": Runtime("cuBLAS", wheel="cublas", part_of="cublas"),
    "libcudnn": Runtime(
        "cuDNN",
        "the process can die with 'Could not load symbol ...', or convolutions fail with "
        "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH",
        wheel="cudnn",
        part_of="cudnn",
    ),
    "libnccl": Runtime(
        "NCCL", "`import torch` can fail with 'undefined symbol: ncclCommRegister'", wheel="nccl"
    ),
    "libnvJitLink": Runtime(
        "nvJitLink",
        "libcusparse and torch can fail to load: 'undefined symbol: __nvJitLinkComplete_12_4'",
        wheel="nvjitlink",
    ),
    "libnvrtc": Runtime(
        "NVRTC",
        "kernels compiled at run time can fail on newer GPUs with 'invalid value for "
        "--gpu-architecture'",
        wheel="cuda_nvrtc",
    ),
    "libcufft": Runtime("cuFFT", wheel="cufft"),
    "libcurand": Runtime("cuRAND", wheel="curand"),
    "libcusolver": Runtime("cuSOLVER", wheel="cusolver"),
    "libcusparse": Runtime("cuSPARSE", wheel="cusparse"),
    "libcusparseLt": Runtime("cuSPARSELt", wheel="cusparselt"),
    "libcupti": Runtime("CUPTI", wheel="cuda_cupti"),
    # Both are LLVM's: the second one to start ends the process ("OMP: Error #15").
    "libomp": Runtime("OpenMP", rival="LLVM's OpenMP"),
    "libiomp5": Runtime("OpenMP", rival="LLVM's OpenMP"),
}
# Those that have parts in files of their own (libcudnn_ops.so.9), which they open by name when
# they need them.
IN_PARTS = frozenset({"libcudnn"})


def unmarked(stem: str) -> str:
    """Return the name of a library, up to ``.so``, without what auditwheel has put in."""
    first, dash, mark = stem.rpartition("-")
    return first if dash and len(mark) == _MARK and _HEX.issuperset(mark) else stem


def stem_of(name: str) -> str:
    """Return the name of a library without version and without what auditwheel has put in.

    Empty for one that is not in the table. The parts of cuDNN have stems of their own.

    Args:
        name: Of its file: ``libgomp-a34b3233.so.1.0.0``.
    """
    stem, so, _ = name.partition(".so")
    stem = unmarked(stem) if so else ""
    return stem if stem in RUNTIMES or stem.partition("_")[0] in IN_PARTS else ""


def runtime_of(stem: str) -> Runtime:
    """Return what is known of a library.

    Args:
        stem: As from `stem_of`, not empty.
    """
    return RUNTIMES[stem] if stem in RUNTIMES else RUNTIMES[stem.partition("_")[0]]
