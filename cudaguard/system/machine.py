"""The machine as CUDA programs find it: driver, NVML, devices, container, and what is wrong.

CUDA is not initialized. NVML is loaded, as it is made for questions from outside, and loads libcuda
itself when it is asked for the CUDA version; where NVML is missing (Jetson, containers) less is
known, and that is said.

Source: NVML API reference, ``nvmlReturn_t``; NVIDIA container toolkit; Windows Subsystem for Linux.
"""

from __future__ import annotations

import re
from glob import glob

from cudaguard.elf.reader import ElfFile
from cudaguard.elf.search_path import Place, SearchPath
from cudaguard.files import os, own_errors, program_errors, read_start
from cudaguard.model import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    Capability = tuple[int, int]

# --- What files tell of the NVIDIA driver: nothing is loaded, and NVML is not asked ---------------
# Source: the driver's README ("The /proc interface"), and how its installers lay it out.

LIBRARY = "libcuda.so.1"
_SAID = re.compile(r"Kernel Module\b.{0,100}?\s(\d+\.\d+(?:\.\d+)?)\s")
_NVIDIA, _DISPLAY = "0x10de", "0x03"  # PCI vendor, and class of a GPU


class DriverFiles(NamedTuple):
    """The driver, as far as files tell.

    Args:
        kernel: Version of the kernel module, empty if it is not loaded.
        library: The libcuda.so.1 that the loader would find, empty if none.
        library_version: Its version, as far as its name tells.
        devices: NVIDIA GPUs on the PCI bus.
    """

    kernel: str
    library: str
    library_version: str
    devices: int


def look_at_driver(root: str = "/") -> DriverFiles:
    """Return what files tell of the driver.

    Args:
        root: Where the file system begins in which devices and ``/proc`` are looked for.
    """
    library = library_file(LIBRARY)
    said = _SAID.search(_content(os.path.join(root, "proc/driver/nvidia/version")))
    return DriverFiles(
        said[1] if said else "",
        library,
        os.path.basename(os.path.realpath(library)).partition(".so.")[2] if library else "",
        sum(map(_is_gpu, glob(os.path.join(root, "sys/bus/pci/devices/*")))),
    )


def library_file(name: str) -> str:
    """Return the file that the loader would take for a library of this process; empty if none."""
    try:
        with ElfFile("/proc/self/exe") as file:
            place = Place(os.path.realpath("/proc/self/exe"), file, None)
            return SearchPath((place,)).find(name, place)
    except own_errors(OSError, ValueError):
        return ""


def _is_gpu(device: str) -> bool:
    vendor, kind = (_content(os.path.join(device, name)) for name in ("vendor", "class"))
    return vendor.strip() == _NVIDIA and kind.startswith(_DISPLAY)


def _content(path: str) -> str:
    try:
        return read_start(path, 1 << 12).decode("utf-8", "replace")
    except own_errors(OSError):
        return ""


# --- What the status codes of the CUDA driver mean to a user --------------------------------------
# Source: CUDA driver API reference, ``CUresult``.

_MEANINGS = {
    1: "an argument is invalid",
    2: "out of memory: other processes hold the memory of this device (nvidia-smi lists them)",
    3: "CUDA is not initialized in this process; in a forked child, its parent had initialized it",
    34: "the CUDA toolkit's stand-in library was loaded in place of the driver: take its folder "
    "(.../stubs) out of LD_LIBRARY_PATH",
    46: "the device is taken: another process holds it in compute mode Exclusive_Process, or it is "
    "prohibited (nvidia-smi -q -d COMPUTE)",
    100: "no CUDA device is there, or CUDA_VISIBLE_DEVICES hides them all",
    101: "there is no such device",
    201: "no CUDA context is current in this thread: use the GPU in this thread first, or make a "
    "context current in it",
    400: "a stream, event or module of another CUDA context, or one that was destroyed",
    500: "the driver lacks this function: it is too old, or no driver at all",
    708: "the context of the device is in use: its settings cannot be changed any more",
    709: "the CUDA context is gone: it was destroyed, or its device was reset, while this thread "
    "used it",
    801: "not supported by this driver",
    802: "the system is not ready: the fabric manager may not be running",
    803: "the driver library and the kernel module are of different versions: reboot after the "
    "update, or start the container with the host's driver",
    804: "forward-compatibility libraries (.../compat) on a device that does not support them: "
    "take them out of LD_LIBRARY_PATH, or update the driver",
    900: "not allowed while a CUDA graph is being captured: do it before the capture begins",
    901: "an earlier error has broken off the capture of a CUDA graph: look at the first error",
    902: "it would merge two captures of CUDA graphs: keep their streams apart",
    903: "the capture of a CUDA graph was begun on another stream: end it there",
    904: "a stream was forked off the capture of a CUDA graph and never joined: have the captured "
    "stream wait for it before the capture ends",
    905: "a stream that is being captured cannot wait for work outside of the capture: do that "
    "before the capture begins",
    906: "the default stream cannot be used while a blocking stream is being captured: capture on "
    "a non-blocking stream, as torch.cuda.graph does",
    999: "unknown error of the driver: device nodes may be missing, or the machine has slept",
}

# How they stand in messages: by the driver's name, and in the words of the runtime.
_TEXTS = {
    3: (
        "CUDA_ERROR_NOT_INITIALIZED",
        "cudaErrorInitializationError",
        "CUDA error: initialization error",
        "cuInit failed: initialization error",
    ),
    34: ("CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"),
    46: ("CUDA_ERROR_DEVICE_UNAVAILABLE", "devices are busy or unavailable"),
    100: (
        "CUDA_ERROR_NO_DEVICE",
        "no CUDA-capable device is detected",
        "No CUDA GPUs are available",
    ),
    101: ("CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"),
    801: ("CUDA_ERROR_NOT_SUPPORTED",),
    802: ("CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"),
    999: ("CUDA_ERROR_UNKNOWN", "CUDA unknown error"),
}

# What to do, where a message has the status.
_REMEDIES = {
    3: "start workers by spawn or forkserver (multiprocessing.set_start_method('spawn')), or do "
    "not use CUDA before the fork; in a process that was not forked call the library's own "
    "initialization first",
    34: "take the folder .../stubs out of LD_LIBRARY_PATH",
    46: "see who holds the GPU (nvidia-smi), or have the compute mode changed (nvidia-smi -c 0)",
    100: "see what CUDA_VISIBLE_DEVICES says, and whether nvidia-smi lists a GPU; in a container "
    "start it with the GPUs (docker run --gpus all)",
    101: "number the devices from 0 among those that CUDA_VISIBLE_DEVICES shows",
    801: "update the driver, or leave that feature out",
    802: "have the fabric manager of this machine started (systemctl status nvidia-fabricmanager)",
    999: "see dmesg for lines with NVRM; after a suspend reload the module: sudo rmmod nvidia_uvm; "
    "sudo modprobe nvidia_uvm",
}


def texts() -> tuple[str, ...]:
    """Return how statuses stand in messages."""
    return tuple(part for parts in _TEXTS.values() for part in parts)


def status_in(line: str) -> tuple[str, str, str] | None:
    """Return the status that a line is about: number, meaning and remedy; None if of none."""
    if "cuda" in line.lower() or "cuInit" in line:  # others have such words, too
        for status, parts in _TEXTS.items():
            if any(part in line for part in parts):
                return str(status), meaning(status), _REMEDIES.get(status, "")
    return None


def meaning(status: int) -> str:
    """Return what a status other than success means, and what to do about it."""
    return _MEANINGS.get(status, "see CUresult in the CUDA driver API reference")


# --- NVML, and what is wrong with the machine -----------------------------------------------------

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
    """Return what is known of this machine.

    Args:
        root: Where its file system begins.

    Returns:
        ``nvml``: ``ok``, ``missing``, or NVML's own words for why it does not work; ``gpus``: name
        and compute capability of each GPU that NVML lists; ``driver_version``: of the kernel's
        half, as in ``580.65.06``; ``supported``: newest CUDA version of the driver, 12040 for 12.4;
        ``driver_library``: a libcuda.so.1 where drivers are installed; ``problems``: what is wrong,
        and what to do about it, in words. What is not known is empty or 0.
    """
    library = next((p for p in DRIVER_PLACES if os.path.exists(os.path.join(root, p[1:]))), "")
    machine = {**_ask_nvml(), "driver_library": library}
    machine["problems"] = list(_problems(machine, kinds_of_machine(root), machine.pop("status")))
    return machine


def kinds_of_machine(root: str = "/") -> tuple[str, ...]:
    """Return what of ``container``, ``wsl`` and ``jetson`` applies here.

    Args:
        root: Where the file system begins.
    """
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
            "the update, or start the container anew"
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
        yield "the driver works and lists no GPU"
    from cudaguard.system.torch_build import look_around

    wanted = look_around().cuda
    major = wanted.partition(".")[0]
    if supported and major.isdecimal() and supported // 1000 < int(major):
        yield (
            f"the driver supports CUDA {supported // 1000}.{supported % 1000 // 10}, and torch is "
            f"built for CUDA {wanted}: update the driver, or install another torch"
        )
