"""The wording of what is wrong with driver, CUDA and NVRTC."""

from __future__ import annotations

import os
import shlex

from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudaguard.system.nvidia_driver import DriverFiles


CUDA = "CG904"
_COMPATIBILITY = "https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html"


def stand_in(library: str) -> Finding:
    """The toolkit's stub in place of the driver."""
    return Finding(
        CUDA,
        f"The loader finds the toolkit's stub instead of the NVIDIA driver: {library}.",
        severity="error",
        consequence="CUDA fails with 'CUDA driver is a stub library' (status 34).",
        remedy="remove that folder from LD_LIBRARY_PATH or /etc/ld.so.conf.d; the stub is for "
        "linking only",
        command='echo "$LD_LIBRARY_PATH" | tr : "\\n"',
    )


def compatible(driver: DriverFiles) -> Finding:
    """A library that is newer than the kernel module, as forward compatibility has it."""
    is_certain = "compat" in driver.library
    return Finding(
        CUDA,
        f"The driver's library is {driver.library_version}, newer than the kernel module "
        f"{driver.kernel}: {'' if is_certain else 'probably '}forward compatibility.",
        severity="info",
        evidence=(driver.library, "/proc/driver/nvidia/version"),
        consequence="newer CUDA works on data center GPUs. On most others it fails: status 804.",
        remedy="do nothing if CUDA works; else remove that library from the search path",
        links=(_COMPATIBILITY,),
    )


def halves_differ(driver: DriverFiles, how: str, *, is_container: bool) -> Finding:
    """A library of one release and a kernel module of another.

    Args:
        driver: The two.
        how: ``newer`` or ``older``: the library.
        is_container: True within a container.
    """
    if is_container:
        remedy = (
            "remove the driver library from the image, and start the container with --gpus all, "
            "which mounts the host's"
        )
        command = f"ls -l {shlex.quote(os.path.dirname(driver.library))}/libcuda.so*"
    elif how == "newer":
        remedy = "reboot if the driver was updated while its old module runs; else install it again"
        command = "sudo reboot"
    else:
        remedy = "remove that older copy of the library, or install the driver again"
        command = "ldconfig -p | grep libcuda"
    return Finding(
        CUDA,
        f"The driver's library is {driver.library_version}, its kernel module {driver.kernel}.",
        severity="error",
        evidence=(driver.library, "/proc/driver/nvidia/version"),
        consequence="CUDA fails with 'system has unsupported display driver / cuda driver "
        "combination' (status 803).",
        remedy=remedy,
        command=command,
    )


def no_library(kernel: str) -> Finding:
    """A kernel module without the library that programs use."""
    return Finding(
        CUDA,
        f"The driver's kernel module {kernel} is loaded, but libcuda.so.1 is not found.",
        severity="error",
        consequence="no program can use CUDA.",
        remedy="start a container with --gpus all; elsewhere install the driver's libraries and "
        "run ldconfig",
        command="ldconfig -p | grep libcuda",
    )


def module_not_loaded(devices: int) -> Finding:
    """GPUs, and no driver for them."""
    return Finding(
        CUDA,
        f"This machine has {devices} NVIDIA GPU{'s' * (devices > 1)}, but the driver's kernel "
        "module is probably not loaded.",
        severity="error",
        evidence=("/proc/driver/nvidia/version does not exist",),
        consequence="without the module no program can use CUDA.",
        remedy="load the kernel module, or install the driver",
        command="sudo modprobe nvidia",
    )


def devices_closed(nodes: Sequence[str]) -> Finding:
    """Device files that this user may not open."""
    return Finding(
        CUDA,
        f"You have no permission to open {nodes[0]}"
        f"{f' and {len(nodes) - 1} more' if nodes[1:] else ''}.",
        severity="error",
        evidence=nodes,
        consequence="CUDA finds no device, or fails to start.",
        remedy="ask an administrator to add you to the group that owns the devices",
        command=f"ls -l {shlex.quote(nodes[0])} && id",
    )


def torch_without_cuda(torch: str, driver: str) -> Finding:
    """A driver, and a torch that cannot use it."""
    return Finding(
        CUDA,
        f"torch {torch} is a build without CUDA, although driver {driver} is installed.",
        evidence=("torch.version.cuda is None",),
        consequence="torch.cuda.is_available() is False, and torch computes on the CPU.",
        remedy="install a CUDA build of torch (https://pytorch.org/get-started/locally)",
        command=f"pip install --force-reinstall torch=={torch.partition('+')[0]}",
    )


def no_driver(torch: str, cuda: str) -> Finding:
    """A torch for CUDA, and no driver."""
    return Finding(
        CUDA,
        f"torch {torch} is built for CUDA {cuda}, but no NVIDIA driver was found.",
        severity="info",
        consequence="torch.cuda.is_available() is False, and torch computes on the CPU.",
        remedy="do nothing on a machine without a GPU; start a container with --gpus all",
        command="nvidia-smi",
    )


def old_driver(driver: DriverFiles, supported: int, torch: str, cuda: str, first: str) -> Finding:
    """A driver that is too old for torch.

    Args:
        driver: The driver.
        supported: The newest CUDA that it supports, 12040 for 12.4.
        torch: Version of torch.
        cuda: The CUDA that it is built for.
        first: The first driver for that; may be empty.
    """
    version = f" {driver.kernel}" if driver.kernel else ""
    needed = f", which needs driver {first} or later" if first else ""
    return Finding(
        CUDA,
        f"The driver{version} supports CUDA {supported // 1000}.{supported % 1000 // 10}, but "
        f"torch {torch} is built for CUDA {cuda}{needed}.",
        severity="error",
        evidence=(driver.library,),
        consequence="torch uses no GPU: 'The NVIDIA driver on your system is too old'.",
        remedy="update the driver, or install a torch for an older CUDA "
        "(https://pytorch.org/get-started/previous-versions)",
        command="nvidia-smi",
    )


def old_nvrtc(path: str, release: str, cuda: str) -> Finding:
    """An NVRTC of an older release than torch's CUDA."""
    return Finding(
        CUDA,
        f"torch is built for CUDA {cuda}, but would load an NVRTC of CUDA {release}.",
        evidence=(path,),
        consequence="kernels compiled at run time fail on GPUs that are newer than this NVRTC.",
        remedy="install the NVRTC that torch pins, and remove that folder from LD_LIBRARY_PATH if "
        "it is there",
        command=f"cudaguard doctor --only CG906; ls {shlex.quote(os.path.dirname(path))}",
    )
