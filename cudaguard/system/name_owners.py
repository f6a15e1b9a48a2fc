"""Owners of functions: the library that defines one, by its name.

Data: the names under which the libraries of this field keep their functions. The first entry that
fits decides, so names that begin alike stand with the longer one first.
"""

from __future__ import annotations

import re
from functools import cache

from cudaguard.model import NamedTuple
from cudaguard.system.runtimes import RUNTIMES

FFMPEG = "ffmpeg"  # the package, of which a library may need another release
# What a library is to the one that needs it.
NVIDIA, TORCH, PYTHON, RUNTIME, OTHER = "nvidia", "torch", "python", "runtime", "other"


class NameOwner(NamedTuple):
    """Library that defines a family of names."""

    kind: str  # one of `NVIDIA`, `TORCH`, `PYTHON`, `RUNTIME` (of C++ or OpenMP) and `OTHER`
    library: str  # the library, without ``.so``
    title: str  # what it is called in a sentence


_OF_NVIDIA = {library: runtime for library, runtime in RUNTIMES.items() if runtime.names}
_TORCH = (
    r"_Z(?:T[VISC]|GV)?N[VKRO]*(?:2at|3c10|5torch|6caffe2)|(?:_Z\d+)?THP?[A-Z]|"
    r"aoti_torch_|torch_(?:c10|call|cuda_stream|delete|dtype|exception|from_blob|generator|get|library|"
    r"list|new|parallel|parse_device|set|stream|string|tag)(?:_|\b)"
)
_NAMES: tuple[tuple[str, NameOwner], ...] = (
    *((r.names, NameOwner(NVIDIA, library, r.title)) for library, r in _OF_NVIDIA.items()),
    (r"cufile[A-Z]|cuFile[A-Z]", NameOwner(NVIDIA, "libcufile", "cuFile")),
    (r"nvshmem", NameOwner(NVIDIA, "libnvshmem_host", "NVSHMEM")),
    (r"cu[A-Z][a-z]", NameOwner(NVIDIA, "libcuda", "the CUDA driver")),
    (_TORCH, NameOwner(TORCH, "libtorch", "torch")),
    (r"_?Py(?!Init_)[A-Z]", NameOwner(PYTHON, "libpython3", "Python")),
    (r"_ZNK?St|_ZSt|_ZT[VIS]N?St|__cxa_|__gxx_", NameOwner(RUNTIME, "libstdc++", "libstdc++")),
    (r"GOMP_|omp_[a-z]", NameOwner(RUNTIME, "libgomp", "OpenMP (libgomp)")),
    (r"__kmpc_|kmp_", NameOwner(RUNTIME, "libiomp5", "OpenMP (libiomp5 or libomp)")),
    (r"iJIT_|__itt_", NameOwner(OTHER, "libittnotify", "ITT, as in MKL")),
    (r"mkl_|MKL_", NameOwner(OTHER, "libmkl_core", "MKL")),
    (r"sqlite3", NameOwner(OTHER, "libsqlite3", "SQLite")),
    (r"FT_[A-Z]", NameOwner(OTHER, "libfreetype", "FreeType")),
    (r"Fc[A-Z]", NameOwner(OTHER, "libfontconfig", "Fontconfig")),
    (r"av(?:codec|format|util|filter|device|io|_)\w|sws_|swr_",
     NameOwner(OTHER, "libavcodec", "FFmpeg")),
    (r"png_", NameOwner(OTHER, "libpng16", "libpng")),
    (r"jpeg_|tj[A-Z]", NameOwner(OTHER, "libjpeg", "libjpeg")),
    (r"TIFF[A-Z]", NameOwner(OTHER, "libtiff", "libtiff")),
    (r"deflate|inflate|crc32|adler32|gz(?:open|read|write|close|getc|puts|eof|flush|seek|tell)",
     NameOwner(OTHER, "libz", "zlib")),
    (r"SSL_|EVP_|OPENSSL_|CRYPTO_", NameOwner(OTHER, "libcrypto", "OpenSSL")),
    (r"curl_", NameOwner(OTHER, "libcurl", "libcurl")),
    (r"H5[A-Z]", NameOwner(OTHER, "libhdf5", "HDF5")),
    (r"g_(?:object|type|value|main|signal|string|list|hash|file|thread|mutex|variant|once)_",
     NameOwner(OTHER, "libglib-2.0", "GLib")),
    (r"_ZNK?4llvm|LLVM[A-Z]", NameOwner(OTHER, "libLLVM", "LLVM")),
    (r"_ZNK?6google8protobuf", NameOwner(OTHER, "libprotobuf", "protobuf")),
    *((rf"_Z(?:T[VIS])?NK?{len(space)}{space}", NameOwner(OTHER, library, title))
      for space, library, title in (
        ("absl", "libabsl", "Abseil"), ("arrow", "libarrow", "Arrow"), ("tbb", "libtbb", "oneTBB"),
        ("cv", "libopencv_core", "OpenCV"), ("boost", "libboost", "Boost"),
        ("grpc", "libgrpc", "gRPC"), ("nvinfer1", "libnvinfer", "TensorRT"),
        ("tensorflow", "libtensorflow_framework", "TensorFlow"))),
    (r"MPI_|ompi_", NameOwner(OTHER, "libmpi", "MPI")),
    (r"Xml|xml[A-Z]", NameOwner(OTHER, "libxml2", "libxml2")),
)  # fmt: skip


NOBODY = NameOwner("", "", "")


def owner_of(name: str) -> NameOwner:
    """Return who defines a function; `NOBODY` for one of nobody that is known here."""
    return next((owner for pattern, owner in _compiled() if pattern.match(name)), NOBODY)


@cache
def _compiled() -> tuple[tuple[re.Pattern[str], NameOwner], ...]:
    return tuple((re.compile(pattern), owner) for pattern, owner in _NAMES)


# Wheels of those of NVIDIA's libraries that are not in `RUNTIMES`.
_WHEELS = {
    "libnvToolsExt": "nvidia-nvtx", "libcufile": "nvidia-cufile", "libnvblas": "nvidia-cublas",
    "libnvshmem_host": "nvidia-nvshmem", "libnvinfer": "tensorrt", "libnvonnxparser": "tensorrt",
    "libnvjpeg": "nvidia-nvjpeg", "libcusolverMg": "nvidia-cusolver", "libcufftw": "nvidia-cufft",
    "libnvfatbin": "nvidia-nvfatbin", "libnvvm": "nvidia-cuda-nvcc", "libcutensor": "cutensor",
    **{f"lib{name}": f"nvidia-{name}"
       for name in ("cudss", "nvcomp", "nvimgcodec", "nvjpeg2k", "nvtiff")},
    **{f"lib{name}": f"lib{name}" for name in ("cudf", "cuml", "rmm", "raft", "cugraph", "cuvs")},
    **{f"libnpp{part}": "nvidia-npp" for part in ("c", "ial", "icc", "idei", "if", "ig", "ist")},
}  # fmt: skip
# Those whose number is CUDA's major version.
_OF_CUDA = (
    "libcudart", "libcublas", "libcublasLt", "libnvrtc", "libnvJitLink", "libcupti", "libnvblas",
    "libnvfatbin", "libnppc", "libnvjpeg",
)  # fmt: skip
# Numbers of their own: (library, number) -> CUDA's.
_NUMBERS = {
    ("libcufft", "10"): "11", ("libcufft", "11"): "12", ("libcufft", "12"): "13",
    ("libcusolver", "12"): "13", ("libcusparse", "11"): "11",
}  # fmt: skip
_LIBRARY = re.compile(
    r"(lib[A-Za-z0-9_+-]{1,80}?)"
    r"(?:_(?:adv|cnn|ops|engines|graph|heuristic|plugin)\w{0,40}|-builtins)?(?:\.alt)?\.so(?:\.(\d+))?"
)


def _parts(soname: str) -> tuple[str, str]:
    """Return a library and its number, which may be empty; of a part of cuDNN those of cuDNN."""
    match = _LIBRARY.match(soname)
    return (match[1], match[2] or "") if match is not None else ("", "")


# Windows has the number in the name: cublas64_12.dll, nvrtc64_120_0.dll, cudart64_110.dll.
_OF_WINDOWS = re.compile(r"(?i)(cu[a-z]\w*?|nv\w+?|cudnn\w*?)(?:64)?_(\d\d?)\d?(?:_\d+)?\.dll$")
# What jax calls them.
_TITLES = {runtime.title: f"{library}.so" for library, runtime in _OF_NVIDIA.items()}
_TITLES.update({"nvvm.dll": "libnvvm.so", "CUDA": "libcudart.so"})


def linux_name(library: str) -> str:
    """Return what Linux calls a library of Windows, or one that is named by its title."""
    match = _OF_WINDOWS.match(library)
    return f"lib{match[1]}.so.{match[2]}" if match else _TITLES.get(library, library)


def cuda_of(soname: str) -> str:
    """Return the major version of CUDA that a library belongs to; empty if its name hides it."""
    library, number = _parts(soname)
    return number if library in _OF_CUDA else _NUMBERS.get((library, number), "")


def requirement_of(soname: str) -> str:
    """Return what pip is to install for one of NVIDIA's libraries; empty where no wheel has it.

    Where the name does not tell for which CUDA, ``cu12`` stands for it. There are no wheels for
    CUDA before 11.
    """
    wheel, (library, number) = wheel_of(soname), _parts(soname)
    if not wheel or int(cuda_of(soname) or 11) < 11:
        return ""
    is_release = library in ("libcudnn", "libnvinfer") and number
    return f"{wheel}=={number}.*" if is_release else wheel


def wheel_of(soname: str) -> str:
    """Return the distribution on PyPI that has one of NVIDIA's libraries; empty for others.

    Where the name does not tell for which CUDA, ``cu12`` stands for it.
    """
    library, _ = _parts(soname)
    middle = RUNTIMES[library].wheel if library in RUNTIMES else ""
    wheel = f"nvidia-{middle.replace('_', '-')}" if middle else _WHEELS.get(library, "")
    if wheel in ("", "tensorrt"):
        return wheel
    cuda = cuda_of(soname) or "12"
    no_suffix = cuda == "13" and not wheel.endswith(("cudnn", "nccl", "cusparselt", "nvshmem"))
    return wheel if no_suffix else f"{wheel}-cu{cuda}"


_OF_FFMPEG = ("avcodec", "avutil", "avformat", "avfilter", "avdevice", "swscale")
# Libraries of the system, and the package of Debian and Ubuntu.
_OF_DEBIAN = {
    "libGL": "libgl1", "libglib-2.0": "libglib2.0-0", "libgthread-2.0": "libglib2.0-0",
    "libSM": "libsm6", "libXext": "libxext6", "libXrender": "libxrender1", "libEGL": "libegl1",
    "libOpenGL": "libopengl0", "libgomp": "libgomp1", "libstdc++": "libstdc++6",
    "libsndfile": "libsndfile1", "libmpi": "libopenmpi3", "libmpi.so.12": "libmpich12",
    "libnuma": "libnuma1", "libibverbs": "libibverbs1", "libsox": "libsox3", "libaio": "libaio1",
    "libtbb": "libtbb12", "libz": "zlib1g", "libX11": "libx11-6", "libGLU": "libglu1-mesa",
    "libvulkan": "libvulkan1", "libOSMesa": "libosmesa6", "libxcb-cursor": "libxcb-cursor0",
    "libxml2": "libxml2", "libusb-1.0": "libusb-1.0-0", "libopenblas": "libopenblas0",
    "libgfortran": "libgfortran5", "librdmacm": "librdmacm1", "libtcmalloc": "libgoogle-perftools4",
    "libturbojpeg": "libturbojpeg", "libcurl": "libcurl4",
    **dict.fromkeys([f"lib{av}" for av in _OF_FFMPEG], FFMPEG),
}  # fmt: skip


def debian_package_of(soname: str) -> str:
    """Return the package of Debian and Ubuntu that has a library; empty if that is not known."""
    return _OF_DEBIAN.get(soname, _OF_DEBIAN.get(soname.partition(".so")[0], ""))
