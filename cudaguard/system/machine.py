"""The machine as CUDA programs find it: driver, NVML, devices, container, and what is wrong.

CUDA is not initialized. NVML is loaded, as it is made for questions from outside, and loads libcuda
itself when it is asked for the CUDA version; where NVML is missing (Jetson, containers) less is
known, and that is said.

Source: NVML API reference, ``nvmlReturn_t``; NVIDIA container toolkit; Windows Subsystem for Linux.
"""

from __future__ import annotations

from cudaguard.files import os, program_errors
from cudaguard.model import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    Capability = tuple[int, int]

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
_KINDS = {
    "container": ("/.dockerenv", "/run/.containerenv", "/.singularity.d"),
    "wsl": ("/dev/dxg", "/usr/lib/wsl"),
    "jetson": ("/etc/nv_tegra_release",),
}
NOT_LOADED, MISMATCH = 9, 18  # nvmlReturn_t


def look_at_machine(root: str = "/") -> dict[str, Any]:
    """Return what is known of this machine; what is not is empty or 0.

    ``nvml``: ``ok``, ``missing``, or NVML's own words for why it does not work; ``gpus``: name and
    compute capability of each GPU that NVML lists; ``driver_version``: of the kernel's half, as in
    ``580.65.06``; ``supported``: newest CUDA version of the driver, 12040 for 12.4;
    ``driver_library``: a libcuda.so.1 where drivers are installed; ``problems``: in words.
    """
    library = next((p for p in DRIVER_PLACES if os.path.exists(os.path.join(root, p[1:]))), "")
    machine = {**_ask_nvml(), "driver_library": library}
    machine["problems"] = list(_problems(machine, kinds_of_machine(root), machine.pop("status")))
    return machine


def kinds_of_machine(root: str = "/") -> tuple[str, ...]:
    """Return what of ``container``, ``wsl`` and ``jetson`` applies here."""
    return tuple(
        kind
        for kind, signs in _KINDS.items()
        if any(os.path.exists(os.path.join(root, sign[1:])) for sign in signs)
    )


def compute_capabilities() -> tuple[Capability, ...]:
    """Return the compute capabilities of the GPUs, as in ``((9, 0), (9, 0))``, by NVML.

    NVML is loaded for it. It does not know which of the GPUs ``CUDA_VISIBLE_DEVICES`` hides; once
    CUDA is initialized, `cudaguard.system.driver` does. There are none where all are hidden, or
    NVML cannot tell that of one.
    """
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return ()
    try:
        found = [gpu["capability"] for gpu in _ask_nvml()["gpus"]]
    except program_errors(Exception):  # of what is installed as pynvml
        return ()
    return tuple(found) if all(found) else ()


def _ask_nvml() -> dict[str, Any]:
    """Return what NVML knows of the fields of `look_at_machine`; ``status`` is its error, or 0."""
    found: dict[str, Any] = {"nvml": "missing", "status": 0, "gpus": [], "supported": 0}
    found["driver_version"] = ""
    try:
        import pynvml
    except ImportError:
        return found
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        is_missing = error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
        return {**found, "nvml": "missing" if is_missing else str(error), "status": error.value}

    def ask(question: Any, *arguments: Any) -> Any:
        try:
            answer = question(*arguments)
        except pynvml.NVMLError:  # this device or driver has none
            return None
        return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer

    try:
        for index in range(ask(pynvml.nvmlDeviceGetCount) or 0):
            handle = ask(pynvml.nvmlDeviceGetHandleByIndex, index)
            if handle is not None:  # else fallen off the bus, or not ours to see
                capability = ask(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
                name = ask(pynvml.nvmlDeviceGetName, handle) or ""
                found["gpus"].append({"name": name, "capability": capability and (*capability,)})
        version = ask(pynvml.nvmlSystemGetDriverVersion) or ""
        supported = ask(pynvml.nvmlSystemGetCudaDriverVersion_v2) or 0
        return {**found, "nvml": "ok", "driver_version": version, "supported": supported}
    finally:
        ask(pynvml.nvmlShutdown)


def _problems(machine: dict[str, Any], kind: tuple[str, ...], status: int) -> Iterator[str]:
    nvml, library, supported = machine["nvml"], machine["driver_library"], machine["supported"]
    if status == MISMATCH:
        yield (
            "the driver's libraries and its kernel module are of different versions: reboot after "
            "the update, or restart the container"
        )
    elif status == NOT_LOADED:
        yield "the NVIDIA kernel module is not loaded: modprobe nvidia, or install the driver"
    elif nvml not in ("ok", "missing"):
        yield f"NVML does not work: {nvml}"
    elif nvml == "missing" and not library:
        if "container" in kind:
            yield (
                "there is no NVIDIA driver in this container: start it with the NVIDIA runtime "
                "(docker run --gpus all)"
            )
        else:
            yield "there is no NVIDIA driver on this machine"
    elif nvml == "missing" and "jetson" not in kind:
        yield "libcuda is there and NVML is not: a part of the driver is missing"
    if nvml == "ok" and not machine["gpus"]:
        yield "the NVIDIA driver works but lists no GPU"
    from cudaguard.system.torch_build import look_around

    wanted = look_around().cuda
    major = wanted.partition(".")[0]
    if supported and major.isdecimal() and supported // 1000 < int(major):
        yield (
            f"the driver supports CUDA {supported // 1000}.{supported % 1000 // 10}, and torch is "
            f"built for CUDA {wanted}: update the driver, or install another torch"
        )
