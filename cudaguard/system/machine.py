"""What this machine offers to CUDA, as data: driver, NVML, devices, container, and what is wrong.

CUDA is not initialized. NVML is loaded, as it is made for questions from outside, and loads libcuda
itself when it is asked for the CUDA version; where NVML is missing (Jetson, containers) less is
known, and that is said.

Source: NVML API reference, ``nvmlReturn_t``; NVIDIA container toolkit; Windows Subsystem for Linux.
"""

from __future__ import annotations

import os

from cudaguard.model import Record
from cudaguard.system.facts import built_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

# Where driver libraries lie that the loader may not have in its cache.
DRIVER_PLACES = (
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    "/usr/lib/aarch64-linux-gnu/libcuda.so.1",
    "/usr/lib64/libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",
    "/usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1",  # JetPack 6 and later; before that:
    "/usr/lib/aarch64-linux-gnu/tegra/libcuda.so.1",
    "/usr/local/nvidia/lib64/libcuda.so.1",
    "/.singularity.d/libs/libcuda.so.1",
)
NOT_LOADED, MISMATCH = 9, 18  # nvmlReturn_t


class GpuFacts(Record):
    """What NVML says of one GPU.

    Args:
        name: Product name.
        capability: Compute capability as in (8, 0), or None.
    """

    name: str = ""
    capability: tuple[int, int] | None = None


class Machine(Record):
    """The machine as CUDA programs find it.

    Args:
        driver_library: A libcuda.so.1 that lies where drivers are installed; empty if none does.
        driver_version: Of the kernel's half, as in ``580.65.06``; empty if unknown.
        supported: Newest CUDA version of the driver, 12040 for 12.4; 0 if unknown.
        nvml: ``ok``, ``missing``, or NVML's own words for why it does not work.
        gpus: What NVML lists.
        problems: What is wrong, and what to do about it, in words.
    """

    driver_library: str = ""
    driver_version: str = ""
    supported: int = 0
    nvml: str = "missing"
    gpus: tuple[GpuFacts, ...] = ()
    problems: tuple[str, ...] = ()


def look_at_machine(root: str = "/") -> Machine:
    """Return what is known of this machine.

    Args:
        root: Where its file system begins.
    """
    library = next((p for p in DRIVER_PLACES if os.path.exists(os.path.join(root, p[1:]))), "")
    said = _ask_nvml()
    status = said.pop("status")
    machine = Machine(driver_library=library, **said)
    return machine.replace(problems=tuple(_problems(machine, kinds_of_machine(root), status)))


def kinds_of_machine(root: str = "/") -> tuple[str, ...]:
    """Return what of ``container``, ``wsl`` and ``jetson`` applies here.

    Args:
        root: Where the file system begins.
    """
    signs = {
        "container": ("/.dockerenv", "/run/.containerenv", "/.singularity.d"),
        "wsl": ("/dev/dxg", "/usr/lib/wsl"),
        "jetson": ("/etc/nv_tegra_release",),
    }
    return tuple(
        name
        for name, files in signs.items()
        if any(os.path.exists(os.path.join(root, file[1:])) for file in files)
    )


def _ask_nvml() -> dict[str, Any]:
    """Return the fields of `Machine` that NVML knows, and ``status``, its error or 0."""
    try:
        import pynvml
    except ImportError:
        return {"nvml": "missing", "status": 0}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        missing = error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
        return {"nvml": "missing" if missing else str(error), "status": error.value}
    try:
        return {
            "nvml": "ok",
            "status": 0,
            "driver_version": _text(_try(pynvml, pynvml.nvmlSystemGetDriverVersion)) or "",
            "supported": _try(pynvml, pynvml.nvmlSystemGetCudaDriverVersion_v2) or 0,
            "gpus": tuple(_gpus(pynvml)),
        }
    finally:
        _try(pynvml, pynvml.nvmlShutdown)


def _gpus(pynvml: Any) -> Iterable[GpuFacts]:
    for index in range(_try(pynvml, pynvml.nvmlDeviceGetCount) or 0):
        handle = _try(pynvml, pynvml.nvmlDeviceGetHandleByIndex, index)
        if handle is None:  # fallen off the bus, or not ours to see
            continue
        capability = _try(pynvml, pynvml.nvmlDeviceGetCudaComputeCapability, handle)
        yield GpuFacts(
            _text(_try(pynvml, pynvml.nvmlDeviceGetName, handle)) or "",
            None if capability is None else (int(capability[0]), int(capability[1])),
        )


def _try(pynvml: Any, question: Any, *arguments: Any) -> Any:
    """Return an answer of NVML, None where this device or driver has none."""
    try:
        return question(*arguments)
    except pynvml.NVMLError:
        return None


def _text(value: Any) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _problems(machine: Machine, kind: tuple[str, ...], status: int) -> Iterable[str]:
    if status == MISMATCH:
        yield (
            "the driver's libraries and its kernel module are of different versions: reboot after "
            "the update, or start the container anew"
        )
    elif status == NOT_LOADED:
        yield "the NVIDIA kernel module is not loaded: modprobe nvidia, or install the driver"
    elif machine.nvml not in ("ok", "missing"):
        yield f"NVML does not work: {machine.nvml}"
    elif machine.nvml == "missing" and not machine.driver_library:
        if "container" in kind:
            yield (
                "there is no NVIDIA driver in this container: start it with the NVIDIA runtime "
                "(docker run --gpus all)"
            )
        else:
            yield "there is no NVIDIA driver on this machine"
    elif machine.nvml == "missing" and "jetson" not in kind:
        yield "libcuda is there and NVML is not: a part of the driver is missing"
    if machine.nvml == "ok" and not machine.gpus:
        yield "the driver works and lists no GPU"
    wanted = built_for()
    if machine.supported and wanted and machine.supported // 1000 < wanted // 1000:
        yield (
            f"the driver supports CUDA {_dotted(machine.supported)}, and torch is built for CUDA "
            f"{_dotted(wanted)}: update the driver, or install another torch"
        )


def _dotted(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"
