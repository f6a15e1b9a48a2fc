"""What the status codes of the CUDA driver mean to a user.

Source: CUDA driver API reference, ``CUresult``.
"""

from __future__ import annotations

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


def remedy_for(status: int) -> str:
    """Return what to do about a status that a message has; empty if nothing is known."""
    return _REMEDIES.get(status, "")


def texts() -> tuple[str, ...]:
    """Return how statuses stand in messages."""
    return tuple(part for parts in _TEXTS.values() for part in parts)


def named_status(text: str) -> tuple[int, str, str] | None:
    """Return the status that a message is about, what it means, and its line; None if of none."""
    for status, parts in _TEXTS.items():
        for part in parts:
            at = text.find(part)
            if at >= 0:
                line = text[text.rfind("\n", 0, at) + 1 :].partition("\n")[0]
                if "cuda" in line.lower() or "cuInit" in line:  # others have such words, too
                    return status, meaning(status), line
    return None


def meaning(status: int) -> str:
    """Return what a status other than success means, and what to do about it."""
    return _MEANINGS.get(status, "see CUresult in the CUDA driver API reference")
