"""Messages about architectures of GPUs, by compilers, torch, CuPy and numba, and of the driver."""

from __future__ import annotations

import re

from cudaguard.core.known_errors import LIKELY, Explainer, KnownError, line_at
from cudaguard.features.gpu_architectures import findings
from cudaguard.features.gpu_architectures.checks import look_at_torch
from cudaguard.features.gpu_architectures.policy import dotted
from cudaguard.files import own_errors
from cudaguard.system.machine import status_in, texts
from cudaguard.system.torch_build import mapped_copies

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.model import Finding

COMPILERS = (
    KnownError(
        "CG897",
        "CuPy cannot compile for a GPU",
        ("CUDA_ERROR_NO_BINARY_FOR_GPU", "CompileException: nvrtc"),
        r"CUDA_ERROR_NO_BINARY_FOR_GPU(?:: no kernel image is available for execution)?|"
        r"CompileException: nvrtc: error: invalid value for --gpu-architecture",
        "There is no code for this GPU. With CuPy, its NVRTC is too old for the GPU, or, from CUDA "
        "13 on, too new.",
        "install an NVRTC that knows it (12.8 or 12.9 for Blackwell: pip install -U "
        "'nvidia-cuda-nvrtc-cu12==12.9.*'; CuPy for CUDA 12 for GPUs before Turing); where it is "
        "too old, CUPY_COMPILE_WITH_PTX=1 before CuPy is imported helps as well",
        "nothing that CuPy compiles runs on this GPU.",
        links=(
            "https://github.com/cupy/cupy/issues/9121",
            "https://github.com/cupy/cupy/issues/9475",
        ),
    ),
    KnownError(
        "CG899",
        "the driver is too old for the code",
        (
            "UNSUPPORTED_PTX_VERSION",
            "UnsupportedPtxVersion",
            "an unsupported toolchain",
            "Unsupported .version",
        ),
        r"(?:CUDA_ERROR_UNSUPPORTED_PTX_VERSION|cudaErrorUnsupportedPtxVersion)?(?:: the "
        r"provided )?"
        r"PTX was compiled with an unsupported toolchain|CUDA_ERROR_UNSUPPORTED_PTX_VERSION|"
        r"cudaErrorUnsupportedPtxVersion|fatal\s{0,9}: Unsupported \.version [\d.]+; current "
        r"version is",
        "The code was compiled by a release of CUDA that is newer than the one that is to assemble "
        "it: this driver, or an older nvJitLink.",
        "install packages for the CUDA of the driver, which nvidia-smi shows (cupy-cuda12x for 12, "
        "cupy-cuda13x for 13; compilers: pip install 'nvidia-cuda-nvcc-cu12==12.4.*' "
        "'nvidia-cuda-nvrtc-cu12==12.4.*' for 12.4), or update the driver; numba-cuda makes "
        "machine code with an nvJitLink of the release of its compilers (pip install -U "
        "'numba-cuda[cu12]'), CuPy unless CUPY_COMPILE_WITH_PTX is set",
        command="nvidia-smi",
        links=(
            "https://github.com/NVIDIA/numba-cuda/issues/163",
            "https://github.com/cupy/cupy/issues/9827",
        ),
    ),
    KnownError(
        "CG898",
        "numba-cuda cannot compile for a GPU",
        (
            "nvJitLink",
            "NVJITLINK_ERROR",
            "Can't use arch-specific",
            "GPU compute capability",
            "No supported GPU compute",
            "libNVVM cannot be found",
        ),
        r"nvJitLink[^']{0,300}'sm_\w{1,9}' is not defined|"
        r"'sm_\w{1,9}' is not defined[\s\S]{0,100}NVJITLINK_ERROR|"
        r"Can't use arch-specific compute_\w{1,9} with closest found compute capability|"
        r"GPU compute capability \d{1,2}\.\d is not supported ?\(requires|"
        r"No supported GPU compute capabilities found|libNVVM cannot be found",
        "The compilers of numba.cuda (NVRTC, NVVM, nvJitLink) do not support this GPU, do not fit "
        "this numba, or are not installed.",
        "install those of one release that supports the GPU: pip install -U 'numba-cuda[cu12]' (or "
        "cu13, for GPUs from Turing on); with a toolkit of your own set CUDA_HOME to it",
        command="pip install -U 'numba-cuda[cu12]'",
        links=(
            "https://github.com/NVIDIA/numba-cuda/issues/163",
            "https://github.com/numba/numba/pull/6227",
        ),
    ),
    KnownError(
        findings.LACKS_COMPILER.id,
        findings.LACKS_COMPILER.title,
        ("invalid value for --gpu-architecture",),
        r"invalid value for --gpu-architecture",
        "The NVRTC in this process does not know the architecture of this GPU: it is too old for "
        "it, or, from CUDA 13 on, too new.",
        "install a torch that was built for this GPU, or an NVRTC of the same major version that "
        "knows it: pip install 'nvidia-cuda-nvrtc-cu12==12.9.*' for CUDA 12",
        "ordinary kernels may run; those compiled at run time (TorchScript fusers, jiterator "
        "operators such as torch.prod) fail. LD_LIBRARY_PATH does not help with wheels from pip.",
        command="cudaguard doctor --deep --only CG913",
        links=findings.LACKS_COMPILER.links,
        unguarded="cudaguard.install() before import torch has an installed one loaded first "
        "(rule CG033)",
    ),
    KnownError(
        findings.LACKS_CODE.id,
        findings.LACKS_CODE.title,
        ("no kernel image is available", "is not compatible with the current PyTorch"),
        r"no kernel image is available for execution|with CUDA capability (?:sm_\w{1,8}) is not "
        r"compatible with the current PyTorch",
        "This library has no code for the architecture of this GPU.",
        "install a build for it (Blackwell needs torch 2.7 or later for CUDA 12.8), or build the "
        "extension with TORCH_CUDA_ARCH_LIST set to the GPU's compute capability; "
        "torch.cuda.get_arch_list() shows what torch supports",
        command="cudaguard doctor --deep --only CG913 --only CG918",
        links=findings.LACKS_CODE.links,
    ),
    KnownError(
        "CG863",
        "Triton's ptxas does not know a GPU",
        ("ptxas fatal",),
        r"ptxas fatal[^'\n]{0,200}'(sm_\w{1,20})' is not defined",
        "The ptxas that was called, mostly by Triton, does not know {0}.",
        "set TRITON_PTXAS_PATH to the ptxas of a newer CUDA toolkit, or update triton",
        command="pip install -U triton",
        links=("https://github.com/triton-lang/triton/issues/8539",),
        nouns=("this GPU",),
    ),
    KnownError(
        "CG714",
        "nvcc does not know an architecture",
        ("nvcc fatal", "Unknown CUDA arch"),
        r"nvcc fatal\s{0,9}: Unsupported gpu architecture '(\w{1,20})'|Unknown CUDA arch "
        r"\(([\w.+]{1,20})\)",
        "The CUDA toolkit is too old, or too new, to compile for {0}.",
        "use the toolkit of torch.version.cuda (12.8 or later for compute_100 and compute_120), or "
        "set TORCH_CUDA_ARCH_LIST to what it knows (nvcc --list-gpu-arch)",
        command="nvcc --list-gpu-arch",
        nouns=("a GPU",),
        words=lambda match: (match[1] or match[2],),
    ),
)


DRIVER = (
    KnownError(
        "CG881",
        "the CUDA driver answers with an error",
        texts(),
        "|".join(map(re.escape, texts())),
        "The CUDA driver answers {0}: {1}.",
        "{2}",
        command="nvidia-smi",
        links=("https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html",),
        certainty=LIKELY,
        nouns=("with an error", "its number and name say which", "look the number up in CUresult"),
        words=lambda match: status_in(line_at(match.string, match.start())),
    ),
    KnownError(
        "CG864",
        "there is no NVIDIA driver",
        ("libcuda.so", "Found no NVIDIA driver", "libnvidia-ml.so"),
        r"lib(?:cuda|nvidia-ml)\.so(?:\.1)?: cannot open shared object file|Found no NVIDIA driver",
        "This process does not find the NVIDIA driver's library.",
        "check that nvidia-smi works here; in a container start it with the GPUs (docker run "
        "--gpus all); else install the driver",
        command="nvidia-smi",
    ),
    KnownError(
        "CG715",
        "the NVIDIA driver is too old",
        (
            "driver on your system is too old",
            "cudaErrorInsufficientDriver",
            "CUDA driver version is insufficient",
        ),
        r"NVIDIA driver on your system is too old(?: \(found version (\d+)\))?|"
        r"cudaErrorInsufficientDriver|CUDA driver version is insufficient",
        "The NVIDIA driver is older than the CUDA that this library was built for, or there is none"
        "{0}.",
        "update the driver, or install a build for the CUDA that nvidia-smi shows "
        "(https://pytorch.org/get-started/previous-versions)",
        command="nvidia-smi",
        nouns=("",),
        words=lambda match: (
            f": it supports CUDA {int(match[1]) // 1000}.{int(match[1]) % 1000 // 10}"
            if match[1]
            else "",
        ),
    ),
    KnownError(
        "CG865",
        "the two halves of the driver differ",
        (
            "SystemDriverMismatch",
            "SYSTEM_DRIVER_MISMATCH",
            "display driver / cuda driver",
            "Driver/library version mismatch",
        ),
        r"cudaErrorSystemDriverMismatch|CUDA_ERROR_SYSTEM_DRIVER_MISMATCH|"
        r"unsupported display driver / cuda driver combination|Driver/library version mismatch",
        "The driver's library and its kernel module are of different versions.",
        "reboot after the update of the driver, or start the container with the host's driver",
        command="cat /proc/driver/nvidia/version; ldconfig -p | grep libcuda",
        links=("https://github.com/NVIDIA/nvidia-docker/issues/1256",),
    ),
    KnownError(
        "CG866",
        "forward compatibility is used where it does not work",
        ("forward compatibility was attempted", "COMPAT_NOT_SUPPORTED"),
        r"forward compatibility was attempted on non supported HW|CUDA_ERROR_COMPAT_NOT_SUPPORTED",
        "Forward-compatibility libraries of a CUDA toolkit are used on a GPU that they do not "
        "support.",
        "remove the folder .../compat from LD_LIBRARY_PATH, or update the driver",
        command='echo "$LD_LIBRARY_PATH" | tr : "\\n"',
    ),
)


def with_facts(finding: Finding) -> Finding:
    """Return what a message of NVRTC or of CUDA means, with what is true of this process."""
    from cudaguard.system.driver import Driver

    try:
        devices = Driver().capabilities()
        here = next(look_at_torch(), None)
    except own_errors(AttributeError, ImportError):  # no ctypes, or odd C library
        return finding
    if here is not None:
        evidence = (*finding.evidence, *here.evidence)
        return here.replace(severity=finding.severity, evidence=evidence)
    if not devices:
        return finding
    facts = [f"device {n} has compute capability {dotted(d)}" for n, d in enumerate(devices)]
    facts += map(findings.compiler_line, mapped_copies())
    return finding.replace(evidence=(*finding.evidence, *facts))


EXPLAINER = Explainer(
    (*COMPILERS, *DRIVER), with_facts, (findings.LACKS_CODE.id, findings.LACKS_COMPILER.id)
)
