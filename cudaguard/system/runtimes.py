"""Libraries that packages bring copies of, and what it means if two files of one are in a process.

The loader goes by the name that a library gives itself (its soname): the first file of a name
that is mapped serves whoever asks for that name later. What wheels bundle mostly has a name of
its own (``libgomp-a34b3233.so.1.0.0``), and then each package has the copy that it was tested with.
"""

from __future__ import annotations

from cudaguard.files import matches, names_in, os, own_errors, read_start
from cudaguard.model import KW_ONLY, TYPE_CHECKING, Record
from cudaguard.system.facts import numbers_of

if TYPE_CHECKING:
    from collections.abc import Iterable

_HEX = frozenset("0123456789abcdef")
_MARK = 8  # digits that auditwheel puts into a name


class Runtime(Record):
    """One library of which there should be one."""

    title: str  # what it is called in a message
    # What happens to those who get an older copy than they were built for
    danger: str = "functions can be missing, or behave as in the older version"
    _: KW_ONLY
    names: str = ""  # Regular expression of how the names of its functions begin
    # The middle of the name of NVIDIA's package that has it, ``nvidia-<wheel>-cu12``
    wheel: str = ""
    part_of: str = ""  # the set whose parts have to be of one release, if there is one
    # Libraries with the same word here abort or crash beside one another, whatever their names are
    rival: str = ""
    allowed_by: str = ""  # variable by which a program says that it wants them so


# By the name of the file up to ".so", without what auditwheel has put in.
# Those whose symbols have versions, or whose releases have names of their own, are not here: the
# loader refuses a copy that is too old (the C++ runtime, libgomp, LLVM, protobuf, FFmpeg).
RUNTIMES: dict[str, Runtime] = {
    "libcudart": Runtime("the CUDA runtime", names="(?:__)?cuda[A-Z]", wheel="cuda_runtime"),
    "libcublasLt": Runtime("cuBLASLt", names="cublasLt[A-Z]", wheel="cublas", part_of="cublas"),
    "libcublas": Runtime("cuBLAS", names="cublas[A-Z]", wheel="cublas", part_of="cublas"),
    "libcudnn": Runtime("cuDNN",
      "the process can die with 'Could not load symbol ...', or convolutions fail with "
      "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH",
      names="cudnn[A-Z]|_ZNK?5cudnn", wheel="cudnn", part_of="cudnn"),
    "libnccl": Runtime("NCCL", names="p?nccl[A-Z]", wheel="nccl"),
    "libnvJitLink": Runtime("nvJitLink", names="(?:__)?nvJitLink[A-Z]", wheel="nvjitlink"),
    "libnvrtc": Runtime("NVRTC",
      "kernels compiled at run time can fail on newer GPUs with 'invalid value for "
      "--gpu-architecture'", names="nvrtc[A-Z]", wheel="cuda_nvrtc"),
    "libcufft": Runtime("cuFFT", names="cufft[A-Z]", wheel="cufft"),
    "libcurand": Runtime("cuRAND", names="curand[A-Z]", wheel="curand"),
    "libcusolver": Runtime("cuSOLVER", names="cusolver[A-Z]", wheel="cusolver"),
    "libcusparseLt": Runtime("cuSPARSELt", names="cusparseLt[A-Z]", wheel="cusparselt"),
    "libcusparse": Runtime("cuSPARSE", names="cusparse[A-Z]", wheel="cusparse"),
    "libcupti": Runtime("CUPTI", names="cupti[A-Z]", wheel="cuda_cupti"),
    **dict.fromkeys(("libomp", "libiomp5"), Runtime("OpenMP",
      "The second one to initialize ends the process: 'OMP: Error #15'. With KMP_DUPLICATE_LIB_OK "
      "set it may hang, crash or compute wrong numbers instead", rival="LLVM's OpenMP",
      allowed_by="KMP_DUPLICATE_LIB_OK")),
}  # fmt: skip
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
    """
    stem, so, _ = name.partition(".so")
    stem = unmarked(stem) if so else ""
    return stem if stem in RUNTIMES or stem.partition("_")[0] in IN_PARTS else ""


def runtime_of(stem: str) -> Runtime:
    """Return what is known of a library."""
    return RUNTIMES[stem] if stem in RUNTIMES else RUNTIMES[stem.partition("_")[0]]


# --- Copies of them in this process ---------------------------------------------------------------

LIBRARY_PATH = "LD_LIBRARY_PATH"


class Copy(Record):
    """A library of `RUNTIMES` that is in this process."""

    path: str  # its file, as the loader came to it
    stem: str  # what `stem_of` calls it
    soname: str  # the name by which it is asked for
    identity: object  # device and inode of its file, or whatever else tells it from others
    by: str  # module that loaded it, empty if that was not seen
    how: str  # who loaded it and where, in words that follow its path

    @property
    def runtime(self) -> Runtime:
        """The entry of `RUNTIMES`."""
        return runtime_of(self.stem)

    @property
    def folder(self) -> str:
        """The folder of its file, links resolved."""
        return os.path.dirname(os.path.realpath(self.path))

    @property
    def release(self) -> tuple[int, ...]:
        """Its release as far as names of files tell, empty if they do not."""
        return version_of(self.path, self.soname)

    @property
    def release_text(self) -> str:
        """The release as text."""
        return ".".join(map(str, self.release))

    def is_like(self, other: Copy) -> bool:
        """Return True if both are of one library, of which a process should have one."""
        rival = self.runtime.rival
        return self.stem == other.stem or bool(rival and rival == other.runtime.rival)

    def is_part_with(self, other: Copy) -> bool:
        """Return True if both are parts of one set, which have to be of one release."""
        part_of = self.runtime.part_of
        return bool(part_of) and other.runtime.part_of == part_of


class Stray(Record):
    """A library that gets another file than its own folders lead to."""

    asking: str  # the library that asks
    how: str  # who loaded that, in words that follow its path
    used: Copy  # what it gets, or will get when it asks
    meant: Copy  # what it was meant to get
    is_part: bool = False  # True if it asks for a part of the same library


class CudnnRequirement(Record):
    """A release of cuDNN that a package was built for."""

    package: str
    by: str  # the distribution that says so, with its version
    said: str  # how it says it, as in ``nvidia-cudnn-cu12>=9.8``
    wheel: str  # the distribution that has the library, empty if it names none
    least: tuple[int, ...]  # the earliest release that will do: major and minor


def first_of_each(copies: Iterable[Copy]) -> dict[str, Copy]:
    """Return for each name the copy that all get who ask by it: the one that was mapped first."""
    found: dict[str, Copy] = {}
    for copy in copies:
        found.setdefault(copy.soname, copy)
    return found


# --- Tells the release of a library by names of files, without loading it -------------------------
# Source: how NVIDIA's wheels are laid out (``nvidia/<part>/lib`` beside their metadata), and how
# libraries are installed elsewhere: ``libx.so.1`` is a link to ``libx.so.1.2.3``.

_BEGINNING = 1 << 12  # bytes: the headers, and mostly the number of the build


def version_of(path: str, soname: str) -> tuple[int, ...]:
    """Return the version of a library as far as names tell, empty if they do not.

    The numbers of a `soname` do not tell. Of NVIDIA's wheels the metadata have the version.
    """
    name = os.path.basename(os.path.realpath(path))
    found = numbers_of(name.partition(".so.")[2]) if name != soname else ()
    stem = stem_of(soname)
    return found or (_version_of_wheel(path, runtime_of(stem).wheel) if stem else ())


def _version_of_wheel(path: str, wheel: str) -> tuple[int, ...]:
    folder = os.path.dirname(os.path.realpath(path))
    for _ in range(3):  # nvidia/<part>/lib
        folder, last = os.path.split(folder)
    if last != "nvidia":
        return ()
    found = set()
    for name in names_in(folder):
        dist, _, rest = name.partition("-")
        version, is_metadata, _ = rest.partition(".dist-info")
        if is_metadata and (f"{dist}_".startswith(f"nvidia_{wheel}_")):
            found.add(numbers_of(version))
    return found.pop() if len(found) == 1 else ()  # of two, nobody knows whose file it is


def is_same_build(first: str, second: str) -> bool:
    """Return True if two files are copies of one another, as far as size and beginning tell."""
    try:
        same_size = os.path.getsize(first) == os.path.getsize(second)
        return same_size and read_start(first, _BEGINNING) == read_start(second, _BEGINNING)
    except own_errors(OSError):
        return False


# --- Families of symbols that many libraries bring copies of, and who is global on purpose --------


class Family(Record):
    """One family of symbols."""

    title: str  # what it is called in a message
    # Patterns of all names of the family; ``*`` and ``?`` are the only signs
    names: tuple[str, ...]
    danger: str  # what a library risks that is bound to another copy than it was built for


# The worst first: a message tells what the first two of those concerned do.
FAMILIES: dict[str, Family] = {
    "std": Family("the C++ runtime",
      (*("_Z*St*", "_ZTI*", "_ZTS*", "_ZN9__gnu_cxx*", "_ZNK9__gnu_cxx*"),
      *("_Znw*", "_Zna*", "_Zdl*", "_Zda*", "__cxa_*", "__gxx_*", "_Unwind_*")),
      "C++ extensions, such as torch's JIT builds, can crash, hang or compute wrong numbers"),
    "llvm": Family("LLVM", ("*llvm*", "*mlir*", "LLVM*"),
      "packages with their own LLVM (triton, numba, JAX) can abort: 'registered more than once'"),
    "protobuf": Family("protobuf", ("*google8protobuf*",),
      "packages with their own protobuf (onnx, tensorflow) can register messages twice and abort"),
    "zlib": Family("zlib",
      (*("deflate*", "inflate*", "crc32*", "adler32*", "compress*", "uncompress*", "gz*"),
      *("zlib*", "zError", "zcalloc", "zcfree", "get_crc_table"),
      *("_tr_*", "_length_code", "_dist_code")),
      "decoding PNG, gzip or HDF5 can fail or return None (OpenCV, libpng, Python's zlib)"),
    "bzip2": Family("bzip2", ("BZ2_*",),
      "users of libbz2 (Python's bz2, FFmpeg) can mix two versions"),
    "ffmpeg": Family("FFmpeg", ("av*", "sws*", "swr*", "ff_*"),
      "packages with their own FFmpeg (OpenCV, PyAV, torchaudio) can call this one"),
    "images": Family("libpng or libjpeg", ("png_*", "jpeg_*", "jinit_*"),
      "image readers can get structures of another version"),
    "xcb": Family("XCB", ("xcb_*",), "windows of graphical toolkits can use this copy, and hang"),
    "openssl": Family("OpenSSL", ("SSL_*", "CRYPTO_*", "EVP_*", "BIO_*", "X509_*", "OPENSSL_*",
      "ERR_*"), "TLS connections (psycopg, Python's ssl) can crash or fail"),
    "sqlite": Family("SQLite", ("sqlite3*",),
      "SQLite (Python's sqlite3) can lack functions and FTS5"),
    "curl": Family("libcurl", ("curl_*",), "pycurl can fail to import, or lack protocols"),
    "openmp": Family("OpenMP", ("omp_*", "GOMP_*", "GOACC_*", "__kmp*"),
      "parallel regions can run in the threads of this copy"),
    "cuda": Family("the CUDA libraries",
      ("cu[A-Zbdfs]*", "curand*", "cupti*", "cutensor*", "__cuda*"),  # no curl_easy_init
      "CUDA calls can go to this copy of the runtime, which has its own state and errors"),
}  # fmt: skip

# Libraries that are made global on purpose, or by everyone: their names are theirs to give, and
# no rule takes that from them. torch has one whose sole purpose it is; the plug-ins of MPI, MKL and
# ONNX Runtime resolve against their cores.
GLOBAL_ON_PURPOSE: tuple[str, ...] = (
    "libtorch_global_deps.so",
    "libmpi*",
    "libmkl_*", "libonnxruntime_providers_shared.so",
    "libpython3*",
    "ld-linux*",
    *(f"{name}{end}" for name in ("libc", "libm", "libdl", "libpthread", "librt", "libutil")
      for end in (".so*", "-2.*.so")),
    *("libstdc++.so*", "libc++.so*", "libc++abi.so*", "libgcc_s.so*", "libunwind.so*"),
    *("libgomp*", "libiomp5*", "libomp*"),
    *("libcudart*", "libcuda.so*", "libcublas*", "libcudadevrt*"),
)  # fmt: skip


_ALL_OF_MKL = "libmkl_rt"


def is_meant_for_all(name: str) -> bool:
    """Return True for a library that is global on purpose, but for all of MKL in one.

    That has the names of FFTW, with little behind some. Nor is BLAS with 64-bit integers: its names
    are those of the usual one.
    """
    is_mixed = "_ilp64" in name or name.startswith(_ALL_OF_MKL)
    return matches(name, GLOBAL_ON_PURPOSE) and not is_mixed


def is_meant_but_fftw(name: str) -> bool:
    """Return True for a library of which the names of FFTW alone are not meant for all."""
    return name.startswith(_ALL_OF_MKL) and "ILP64" not in os.environ.get("MKL_INTERFACE_LAYER", "")
