"""What NVML says of a device, without a context and without CUDA being initialised.

NVML numbers devices by PCI order and knows nothing of ``CUDA_VISIBLE_DEVICES``: devices are asked
for by UUID only. It may be missing (Jetson, containers); then nothing is known, and that is all.

Source: NVML API reference, "Device Queries".
"""

from __future__ import annotations

import os

from cudaguard.probe.loaded import Memory, first_entry, loaded_libraries

_FILE = "libnvidia-ml.so"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def used_memory(uuid: str) -> int | None:
    """Return the bytes of device memory in use by all processes; None where NVML cannot tell.

    Args:
        uuid: The device, as in ``GPU-8f3c...``.
    """
    memory = _ask(uuid, lambda nvml, handle: nvml.nvmlDeviceGetMemoryInfo(handle))
    return None if memory is None else int(memory.used)


def compute_processes(uuid: str) -> tuple[tuple[int, int | None], ...]:
    """Return (pid, bytes or None) of the processes with a context on a device.

    Nothing is loaded for it: where NVML is not in the process already, nothing is known.

    Args:
        uuid: The device, as in ``GPU-8f3c...``.
    """
    try:
        with Memory() as memory:
            libraries = loaded_libraries(memory, first_entry())
    except OSError:
        return ()
    if not any(os.path.basename(library.path).startswith(_FILE) for library in libraries):
        return ()

    def ask(nvml: Any, handle: Any) -> tuple[tuple[int, int | None], ...]:
        found = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        return tuple((process.pid, process.usedGpuMemory) for process in found)

    return _ask(uuid, ask) or ()


def _ask(uuid: str, question: Any) -> Any:
    if not uuid:
        return None
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            return question(pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid.encode()))
        finally:
            pynvml.nvmlShutdown()
    except Exception:  # no NVML, one that does not work, or warnings made errors: not known then
        return None
