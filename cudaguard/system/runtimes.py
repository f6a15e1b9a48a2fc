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
        part_of: The set whose parts have to be of one release, if there is one.
        rival: Libraries with the same word here abort or crash beside one another, whatever their
            names are.
        is_checked: Do versions of its symbols, or its very name, tell the loader that a copy is
            too old? Then whatever was loaded at all gets what it was built for.
        wheel: The middle of the name of NVIDIA's package that brings it, ``nvidia-<wheel>-cu12``.
    """

    title: str
    danger: str = ""
    _: KW_ONLY
    part_of: str = ""
    rival: str = ""
    is_checked: bool = False
    wheel: str = ""


def _cuda(title: str, wheel: str, danger: str = "", part_of: str = "") -> Runtime:
    danger = danger or "functions can be missing, or behave as in the older release"
    return Runtime(title, danger, wheel=wheel, part_of=part_of)


_OPENMP = "parallel regions run in the threads of another copy"
_CXX = "C++ libraries mix two releases of the C++ runtime"
_PROTOBUF = "messages are registered with another copy"
_FFMPEG = "code of one release reads the structures of another"

# By the name of the file up to ".so", without what auditwheel has put in.
RUNTIMES: dict[str, Runtime] = {
    "libcudart": _cuda("the CUDA runtime", "cuda_runtime"),
    "libcublas": _cuda("cuBLAS", "cublas", part_of="cublas"),
    "libcublasLt": _cuda("cuBLAS", "cublas", part_of="cublas"),
    "libcudnn": _cuda(
        "cuDNN",
        "cudnn",
        "the process can die with 'Could not load symbol ...', or convolutions fail with "
        "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH",
        part_of="cudnn",
    ),
    "libnccl": _cuda(
        "NCCL",
        "nccl",
        "`import torch` can fail with 'undefined symbol: ncclCommRegister'",
    ),
    "libnvJitLink": _cuda(
        "nvJitLink",
        "nvjitlink",
        "libcusparse and torch can fail to load: 'undefined symbol: __nvJitLinkComplete_12_4'",
    ),
    "libnvrtc": _cuda(
        "NVRTC",
        "cuda_nvrtc",
        "kernels compiled at run time can fail on newer GPUs with 'invalid value for "
        "--gpu-architecture'",
    ),
    "libcufft": _cuda("cuFFT", "cufft"),
    "libcurand": _cuda("cuRAND", "curand"),
    "libcusolver": _cuda("cuSOLVER", "cusolver"),
    "libcusparse": _cuda("cuSPARSE", "cusparse"),
    "libcusparseLt": _cuda("cuSPARSELt", "cusparselt"),
    "libcupti": _cuda("CUPTI", "cuda_cupti"),
    "libstdc++": Runtime("the C++ runtime", _CXX, is_checked=True),
    "libgomp": Runtime("OpenMP", _OPENMP, is_checked=True),
    # Both are LLVM's: the second one to start ends the process ("OMP: Error #15").
    "libomp": Runtime("OpenMP", _OPENMP, rival="LLVM's OpenMP", is_checked=True),
    "libiomp5": Runtime("OpenMP", _OPENMP, rival="LLVM's OpenMP", is_checked=True),
    "libLLVM": Runtime("LLVM", "compilers use code of another release", is_checked=True),
    # Each release that is not compatible has a name of its own, as with LLVM: libprotobuf.so.32 is
    # all of 3.21.
    "libprotobuf": Runtime("protobuf", _PROTOBUF, is_checked=True),
    "libprotobuf-lite": Runtime("protobuf", _PROTOBUF, is_checked=True),
    **{
        name: Runtime("FFmpeg", _FFMPEG, is_checked=True)
        for name in ("libavcodec", "libavdevice", "libavfilter", "libavformat", "libavutil",
                     "libswresample", "libswscale")
    },
}  # fmt: skip
# Those that have parts in files of their own (libcudnn_ops.so.9), which they open by name when
# they need them.
IN_PARTS = frozenset({"libcudnn"})


def stem_of(name: str) -> str:
    """Return the name of a library without version and without what auditwheel has put in.

    Empty for one that is not in the table. The parts of cuDNN have stems of their own.

    Args:
        name: Of its file: ``libgomp-a34b3233.so.1.0.0``.
    """
    stem, so, _ = name.partition(".so")
    if not so:
        return ""
    if stem in RUNTIMES:
        return stem
    first, dash, mark = stem.rpartition("-")
    if dash and len(mark) == _MARK and _HEX.issuperset(mark):
        stem = first
        if stem in RUNTIMES:
            return stem
    if stem.startswith("libLLVM-"):
        return "libLLVM"
    return stem if stem.partition("_")[0] in IN_PARTS else ""


def runtime_of(stem: str) -> Runtime:
    """Return what is known of a library.

    Args:
        stem: As from `stem_of`, not empty.
    """
    return RUNTIMES[stem] if stem in RUNTIMES else RUNTIMES[stem.partition("_")[0]]
