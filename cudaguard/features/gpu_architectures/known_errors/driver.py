"""Messages about the NVIDIA driver."""

from __future__ import annotations

import re

from cudaguard.core.evidence import line_at
from cudaguard.core.known_errors import LIKELY, KnownError
from cudaguard.system.driver_status import named_status, remedy_for, texts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.model import Finding


def _of_status(match: re.Match[str]) -> Finding | None:
    status = named_status(line_at(match.string, match.start()))
    if status is None:
        return None
    number, meaning, _ = status
    return STATUS.with_words(str(number), meaning, remedy_for(number))


STATUS = KnownError(
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
    tell=_of_status,
    examples=(
        "RuntimeError: CUDA error: initialization error",
        "cuInit: CUDA_ERROR_NO_DEVICE",
        (
            "numba.cuda.cudadrv.driver.CudaAPIError: [3] Call to cuInit results in "
            "CUDA_ERROR_NOT_INITIALIZED"
        ),
    ),
)

KNOWN = (
    STATUS,
    KnownError(
        "CG864",
        "there is no NVIDIA driver",
        ("libcuda.so", "Found no NVIDIA driver", "libnvidia-ml.so"),
        r"lib(?:cuda|nvidia-ml)\.so(?:\.1)?: cannot open shared object file|Found no NVIDIA driver",
        "This process does not find the NVIDIA driver's library.",
        "check that nvidia-smi works here; in a container start it with the GPUs (docker run "
        "--gpus all); else install the driver",
        command="nvidia-smi",
        any_order=True,
        examples=(
            "OSError: libcuda.so.1: cannot open shared object file: No such file or directory",
            "RuntimeError: Found no NVIDIA driver on your system.",
        ),
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
        any_order=True,
        examples=(
            "RuntimeError: The NVIDIA driver on your system is too old (found version 12020).",
            "CUDA driver version is insufficient for CUDA runtime version",
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
        any_order=True,
        examples=(
            "Failed to initialize NVML: Driver/library version mismatch",
            "CUDA error: system has unsupported display driver / cuda driver combination",
        ),
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
        examples=("CUDA error: forward compatibility was attempted on non supported HW",),
    ),
)
