"""Messages of the loader, of CUDA and of torch that do not say what is wrong: what they mean.

Data only; the first entry whose pattern is found explains a text. Sources: the messages as they are
printed by glibc, CUDA 11 to 13, NVRTC, torch 2.5 to 2.14, DALI 1.35, and the reports linked.
"""

from __future__ import annotations

import re
from functools import lru_cache

from cudaguard.model import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cudaguard.model import Finding


class KnownError(Record):
    """What a message means.

    Args:
        id: Stable id.
        pattern: Regular expression that is searched for; what its groups find can be named in the
            texts, as in ``{0}``.
        what: What is wrong.
        remedy: What to do.
        consequence: What else follows from it; may be empty.
        links: Evidence.
    """

    __slots__ = ("consequence", "id", "links", "pattern", "remedy", "what")
    id: str
    pattern: str
    what: str
    remedy: str
    consequence: str
    links: tuple[str, ...]

    def __init__(
        self,
        id: str,
        pattern: str,
        what: str,
        remedy: str,
        consequence: str = "",
        links: tuple[str, ...] = (),
    ) -> None:
        self._fill(
            id=id, pattern=pattern, what=what, remedy=remedy, consequence=consequence, links=links
        )


class Explainer:
    """What a feature can say of the texts of errors, beyond what `KNOWN_ERRORS` has.

    Args:
        explain: Returns what a text means, None if it is not known.
        ids: The ids of what it explains, and of what it adds to.
        in_process: Returns what is to be said where the error is raised, with what is true of this
            process; None where that was said otherwise.
        about: Returns what an id is about, without a text; None where the core knows.
        is_found: True if such an error is a finding, and not only a text that is explained.
    """

    def __init__(
        self,
        explain: Callable[[str], Finding | None] = lambda _: None,
        ids: Iterable[str] = (),
        in_process: Callable[[Finding], Finding | None] = lambda finding: finding,
        about: Callable[[str], Finding | None] = lambda _: None,
        *,
        is_found: bool = False,
    ) -> None:
        self.explain, self.ids, self.about = explain, frozenset(ids), about
        self.in_process, self.is_found = in_process, is_found


DRIVER = KnownError("CG881", "", "The CUDA driver answers {0}: {1}.", "")  # see `driver_status`

_MOST = 1 << 20  # characters of a log that are looked through: its end
_TORCH_LIBRARY = r"(lib(?:c10|torch|torch_cpu|torch_python)\.so)"
_CUDA_NAMES = "cudart|cublas|cublasLt|cudnn\\w*|cufft|curand|cusolver|cusparse|nccl|nvrtc|nvJitLink"
_CUDA_LIBRARY = rf"(\blib(?:{_CUDA_NAMES})\.so)"
_CUDA = r"[Cc][Uu][Dd][Aa]|\bcu[A-Z]"
_NOT_FOUND = ": cannot open shared object file"

KNOWN_ERRORS: tuple[KnownError, ...] = (
    KnownError(
        "CG897",
        r"CUDA_ERROR_NO_BINARY_FOR_GPU|CompileException: nvrtc: error: invalid value for "
        r"--gpu-architecture",
        "CuPy's NVRTC does not know the architecture of this GPU: it is too old for it, or, from "
        "CUDA 13 on, too new.",
        "install an NVRTC that knows it (12.8 or 12.9 for Blackwell: pip install -U "
        "'nvidia-cuda-nvrtc-cu12==12.9.*'; CuPy for CUDA 12 for GPUs before Turing); where it is "
        "too old, CUPY_COMPILE_WITH_PTX=1 before CuPy is imported helps as well",
        "nothing that CuPy compiles runs on this GPU.",
        (
            "https://github.com/cupy/cupy/issues/9121",
            "https://github.com/cupy/cupy/issues/9475",
        ),
    ),
    KnownError(
        "CG899",
        r"CUDA_ERROR_UNSUPPORTED_PTX_VERSION|cudaErrorUnsupportedPtxVersion|PTX was compiled with "
        r"an unsupported toolchain|fatal\s{0,9}: Unsupported \.version [\d.]+; current version is",
        "The code was compiled by a release of CUDA that is newer than the one that is to assemble "
        "it: this driver, or an older nvJitLink.",
        "update the driver; or take compilers no newer than the driver, whose CUDA nvidia-smi "
        "shows (pip install 'nvidia-cuda-nvcc-cu12==12.4.*' 'nvidia-cuda-nvrtc-cu12==12.4.*' for "
        "12.4); or have machine code made: numba-cuda does with an nvJitLink of the release of its "
        "compilers (pip install -U 'numba-cuda[cu12]'), CuPy unless CUPY_COMPILE_WITH_PTX is set",
        links=(
            "https://github.com/NVIDIA/numba-cuda/issues/163",
            "https://github.com/numba/numba/issues/7006",
        ),
    ),
    KnownError(
        "CG898",
        r"nvJitLink[^']{0,300}'sm_\w{1,9}' is not defined|"
        r"'sm_\w{1,9}' is not defined[\s\S]{0,100}NVJITLINK_ERROR|"
        r"Can't use arch-specific compute_\w{1,9} with closest found compute capability|"
        r"GPU compute capability \d{1,2}\.\d is not supported ?\(requires|"
        r"No supported GPU compute capabilities found|libNVVM cannot be found",
        "The compilers that numba.cuda has found (NVRTC, NVVM, nvJitLink) are of a release of CUDA "
        "that does not know this GPU or this numba, or they are not there.",
        "install those of one release that knows the GPU: pip install -U 'numba-cuda[cu12]' (or "
        "cu13, for GPUs from Turing on); with a toolkit of your own set CUDA_HOME to it",
        links=(
            "https://github.com/NVIDIA/numba-cuda/issues/163",
            "https://github.com/numba/numba/pull/6227",
        ),
    ),
    KnownError(
        "CG861",
        r"invalid value for --gpu-architecture",
        "The NVRTC in this process does not know the architecture of this GPU: it is too old for "
        "it, or, from CUDA 13 on, too new.",
        "install a torch that was built for this GPU; or an NVRTC of the same major version that "
        "knows it, beside torch's own: pip install --no-deps --target DIR "
        "'nvidia-cuda-nvrtc-cu12==12.9.*', with DIR on PYTHONPATH, and cudaguard.install() before "
        "import torch, which has it loaded first (rule CG033)",
        "ordinary kernels may run; those compiled at run time (TorchScript fusers, jiterator "
        "operators such as torch.prod) fail. LD_LIBRARY_PATH does not help with wheels from pip.",
        ("https://github.com/pytorch/pytorch/issues/87595",),
    ),
    KnownError(
        "CG862",
        r"no kernel image is available for execution",
        "This library has no code for the architecture of this GPU.",
        "install a build for it (torch.cuda.get_arch_list() tells what torch has), or build the "
        "extension with TORCH_CUDA_ARCH_LIST set to the GPU's compute capability",
    ),
    KnownError(
        "CG863",
        r"ptxas fatal[^'\n]{0,200}'(sm_\w{1,20})' is not defined",
        "The ptxas that Triton uses does not know {0}.",
        "set TRITON_PTXAS_PATH to the ptxas of a newer CUDA toolkit, or update triton",
        links=("https://github.com/triton-lang/triton/issues/8539",),
    ),
    KnownError(
        "CG864",
        r"libcuda\.so\.1" + _NOT_FOUND + r"|Found no NVIDIA driver|cudaErrorInsufficientDriver|"
        r"CUDA driver version is insufficient",
        "There is no NVIDIA driver for this process, or it is older than the CUDA runtime needs.",
        "see whether nvidia-smi works here; in a container start it with the GPUs (docker run "
        "--gpus all); else update the driver, or install a build for an older CUDA",
    ),
    KnownError(
        "CG865",
        r"cudaErrorSystemDriverMismatch|CUDA_ERROR_SYSTEM_DRIVER_MISMATCH|"
        r"unsupported display driver / cuda driver combination|Driver/library version mismatch",
        "The driver's library and its kernel module are of different versions.",
        "reboot after the update of the driver, or start the container with the host's driver",
        links=("https://github.com/NVIDIA/nvidia-docker/issues/1256",),
    ),
    KnownError(
        "CG866",
        r"forward compatibility was attempted on non supported HW|CUDA_ERROR_COMPAT_NOT_SUPPORTED",
        "Forward-compatibility libraries of a CUDA toolkit are used on a GPU that has none.",
        "take the folder .../compat out of LD_LIBRARY_PATH, or update the driver",
    ),
    KnownError(
        "CG867",
        _TORCH_LIBRARY + _NOT_FOUND,
        "The extension links {0}, which is in torch's own folder, and torch is not imported yet.",
        "import torch first; with cudaguard.install() on the first line, cudaguard imports it",
        links=("https://github.com/pytorch/extension-cpp/issues/50",),
    ),
    KnownError(
        "CG882",
        r"(\blib(?:c10|torch)_cuda\w*\.so)" + _NOT_FOUND,
        "The extension links {0}: it was built for a torch with CUDA, and this torch has none, or "
        "is not imported yet.",
        "print(torch.version.cuda): if that is None install a torch with CUDA, or build the "
        "extension for the CPU; else import torch first",
    ),
    KnownError(
        "CG868",
        _CUDA_LIBRARY + r"(\.[\d.]+)?" + _NOT_FOUND,
        "{0}{1} is nowhere on the loader's path: what needs it was built for that major version of "
        "CUDA.",
        "install a build for the CUDA that torch.version.cuda names, or the nvidia-* package that "
        "has this library",
    ),
    KnownError(
        "CG842",
        r"(\blib(?:torch|c10|cusparse|cusolver|cublas|cudnn|cufft|nv)\w*\.so[\d.]*): undefined "
        r"symbol: ((?:__nvJitLink|nccl|cudnn|cublas(?:Lt)?|cusparse|cusolver|cufft|curand|nvrtc)"
        r"[A-Z]\w+)",
        "{0} gets an older copy of the library that has {1} than it was made for.",
        "start without LD_LIBRARY_PATH if it leads to another CUDA (unset LD_LIBRARY_PATH); see "
        "whether pip list shows two releases of the nvidia-* package; else import torch before the "
        "package with the other copy: cudaguard.install() on the first line tells which one",
        links=(
            "https://github.com/pytorch/pytorch/issues/111469",
            "https://github.com/pytorch/pytorch/issues/119932",
        ),
    ),
    KnownError(
        "CG869",
        r"undefined symbol: (_ZNK?(?:2at|3c10|5torch|6caffe2)\w*)",
        "The extension was built for another torch, or with the other C++ ABI: this torch has no "
        "{0}.",
        "rebuild it against the installed torch (pip install --no-build-isolation --no-cache-dir "
        "--force-reinstall), or install the torch that it was built for; "
        "cudaguard.check_extension() tells which",
        links=("https://github.com/Dao-AILab/flash-attention/issues/1644",),
    ),
    KnownError(
        "CG870",
        r"version [`'](GLIBCXX|CXXABI|GLIBC)_([\w.]+)' not found",
        "The library was built on a newer system than this one, or an older libstdc++ was loaded "
        "before the one that it needs ({0}_{1}).",
        "install a build for this system; in conda environments: conda install libstdcxx-ng",
    ),
    KnownError(
        "CG871",
        r"undefined symbol: (\w+)",
        "No loaded library defines {0}: if it is a function of the extension itself, the object "
        "file that holds it was never linked.",
        "cudaguard.check_extension(<file>) tells whose it is; rebuild it with nvcc visible",
        links=("https://github.com/fundamentalvision/Deformable-DETR/issues/225",),
    ),
    KnownError(
        "CG872",
        r"Ninja is required to load C\+\+ extensions",
        "ninja is not on PATH, as in a virtual environment that is not activated.",
        "activate the environment, or put its bin folder into PATH; pip install ninja if it is not "
        "there",
    ),
    KnownError(
        "CG873",
        r"CUDA_HOME environment variable is not set",
        "torch finds no CUDA toolkit, or is a build without CUDA, for which it looks for none.",
        "print(torch.version.cuda): if that is None install a torch with CUDA; else install the "
        "toolkit of that version and set CUDA_HOME to its folder",
    ),
    KnownError(
        "CG874",
        r"(?s)(?:arch_list\[-1\]|_get_cuda_arch_flags).{0,600}IndexError: list index out of range",
        "No GPU is visible where the extension is built, so torch does not know what to build for.",
        "set TORCH_CUDA_ARCH_LIST, for instance to '8.0;8.6;9.0+PTX', and build again",
    ),
    KnownError(
        "CG875",
        r"detected CUDA version.{0,200}mismatches the version that was used to compile",
        "nvcc is of another major version than the CUDA that torch was built with.",
        "install the toolkit of torch.version.cuda and set CUDA_HOME to it, or a torch for the "
        "CUDA of this nvcc",
    ),
    KnownError(
        "CG876",
        r"THC/THC\w*\.h",
        "The sources are older than torch 1.11, which has no THC headers.",
        "use a newer release of the project, or torch 1.10",
    ),
    KnownError(
        "CG877",
        r"CommandLine Error: Option .{1,200} registered more than once|"
        r"inconsistency in registered CommandLine options",
        "Two copies of LLVM share their symbols, as those of tensorflow and triton do.",
        "cudaguard.install() before the first of them is imported (rule CG002)",
        links=("https://github.com/tensorflow/tensorflow/issues/124205",),
    ),
    KnownError(
        "CG878",
        r"libpng error: bad parameters to zlib",
        "libpng calls another library's copy of zlib, such as the one in decord.",
        "cudaguard.install() before decord is imported (rule CG001)",
        links=("https://github.com/dmlc/decord/issues/293",),
    ),
    KnownError(
        "CG879",
        rf"(?:{_CUDA})(?:(?!{_CUDA})[^\n]){{0,200}}(?:invalid resource handle|invalid device "
        r"context|context is destroyed)|cannot operate on non-primary CUDA context",
        "Streams, events or memory of one CUDA context are used in another, as where PyCUDA's own "
        "context stands beside the primary one of torch.",
        "use the primary context: import pycuda.autoprimaryctx in place of autoinit, or enable "
        "rule CG013; cudaguard.install() tells who made a context of its own (CG816)",
        links=("https://github.com/NVIDIA/TensorRT/issues/4335",),
    ),
    KnownError(
        "CG880",
        r"TensorGPU.{0,200}returned a result with an exception set|"
        r"Provided stream is not a valid CUDA stream|Object at position \d+ cannot be converted to "
        r"TensorGPU",
        "DALI does not take the __cuda_array_interface__ of this array: a stream None or 0, a "
        "NumPy integer, or a list in it.",
        "cudaguard.install() before or after DALI is imported (rule CG019), or hand over "
        'cudaguard.normalize(array, consumer="dali")',
        links=("https://github.com/NVIDIA/DALI/issues/5423",),
    ),
    KnownError(
        "CG883",
        r"module was compiled for Python (\d+\.\d+), but the interpreter version is "
        r"incompatible: (\d+\.\d+)",
        "The extension was compiled for Python {0}, and this is Python {1}: its file carries the "
        "wrong name.",
        "rebuild it with this interpreter: delete its build folder, then python -m pip install "
        "--no-cache-dir --force-reinstall <package>",
    ),
    KnownError(
        "CG884",
        r"dynamic module does not define module export function \(PyInit_(\w+)\)",
        "The file was loaded, and it is not an extension module called {0}: it was renamed after "
        "it was built, built under another name (TORCH_EXTENSION_NAME, the name of the Extension "
        "in setup.py), or is a plain library.",
        "build it under the name that it is imported by; load a library of operators with "
        "torch.ops.load_library(path) instead of importing it",
    ),
)


# Of those that no feature finds as well.
IDS = {
    **{f"CG{number}": ("an error message that is explained", "") for number in range(861, 885)},
}


def text_of(error: BaseException) -> str:
    """Return what an error says; nothing if it cannot say it."""
    try:
        return str(error)
    except Exception:  # of a class of the program's
        return ""


def known_error(text: str) -> tuple[KnownError, tuple[str, ...], str] | None:
    """Return what explains a text, what its groups have found, and where; None if nothing does."""
    text = text[-_MOST:]
    for known in KNOWN_ERRORS:
        match = _compiled(known.pattern).search(text)
        if match is not None:
            begin = text.rfind("\n", 0, match.start()) + 1
            line = text[begin:].partition("\n")[0]
            return known, tuple(group or "" for group in match.groups()), line
    return None


@lru_cache(maxsize=len(KNOWN_ERRORS))
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
