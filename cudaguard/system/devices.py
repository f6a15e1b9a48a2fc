"""What NVML says of a device, without a context and without CUDA being initialized.

NVML numbers devices by PCI order and knows nothing of ``CUDA_VISIBLE_DEVICES``, which is therefore
read here as CUDA would. It may be missing (Jetson, containers); then nothing is known, and that is
all.

Source: NVML API reference, "Device Queries", "Multi Instance GPU Management"; CUDA programming
guide, "CUDA Environment Variables"; MIG user guide, "CUDA Device Enumeration".
"""

from __future__ import annotations

import re

from cudaguard.files import os, theirs

_NUMBER = re.compile(r"\+?\d+")  # "1x" is 1 as well
_PART = re.compile(r"MIG-(GPU-[^/]+)/\d+/\d+")  # of a GPU, as drivers before 470 name it

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Capability = tuple[int, int]


def compute_capabilities() -> tuple[Capability, ...]:
    """Return the compute capabilities of the devices that CUDA would show to this process.

    NVML is loaded for it. Once CUDA is initialized, `cudaguard.system.driver` knows it for certain.

    Returns:
        One per device, as in ``((9, 0), (9, 0))``; nothing where none is visible or NVML cannot
        tell. Where devices differ, and it cannot be known which of them the numbers in
        ``CUDA_VISIBLE_DEVICES`` mean, those of all.
    """
    return _asked(_capabilities) or ()


def used_memory(uuid: str) -> int | None:
    """Return the bytes of device memory in use by all processes; None where NVML cannot tell.

    Args:
        uuid: The device, as in ``GPU-8f3c...``.
    """
    memory = _ask(uuid, lambda nvml, handle: nvml.nvmlDeviceGetMemoryInfo(handle))
    return None if memory is None else int(memory.used)


def _ask(uuid: str, question: Any) -> Any:
    if not uuid:
        return None
    return _asked(lambda nvml: question(nvml, nvml.nvmlDeviceGetHandleByUUID(uuid.encode())))


def _asked(question: Any) -> Any:
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            return question(pynvml)
        finally:
            pynvml.nvmlShutdown()
    except theirs(
        Exception
    ):  # no NVML, one that does not work, or warnings made errors: not known then
        return None


def _capabilities(nvml: Any) -> tuple[Capability, ...]:
    uuids, capabilities = [], []
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        uuids.append(_text(nvml.nvmlDeviceGetUUID(handle)))
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
        capabilities.append((int(major), int(minor)))

    def gpu_of(instance: str) -> str:
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(instance.encode())
            gpu = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
            return _text(nvml.nvmlDeviceGetUUID(gpu))
        except nvml.NVMLError:
            return ""

    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return tuple(capabilities)
    shown = _shown(listed, uuids, gpu_of)
    is_numbered = _NUMBER.match(listed.strip()) is not None
    is_in_order = os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or not is_numbered
    if is_in_order or len(set(capabilities)) <= 1 or not shown:
        return tuple(capabilities[index] for index in shown)
    return tuple(capabilities)  # the fastest comes first, and NVML does not say which that is


def _shown(listed: str, uuids: Sequence[str], gpu_of: Callable[[str], str]) -> list[int]:
    """Return which devices ``CUDA_VISIBLE_DEVICES`` shows, as positions among the UUIDs.

    The first entry decides whether numbers or names are meant, an invalid one ends the list, and
    one device named twice makes it empty; a part of a GPU (MIG) is the only device of a process.

    Args:
        listed: The value of the variable.
        uuids: Of the devices of the machine.
        gpu_of: Returns the UUID of the GPU that a MIG instance is a part of, empty if of none.
    """
    entries = [entry.strip() for entry in listed.split(",")]
    kind = entries[0][:4]
    shown: list[int] = []
    for entry in entries:
        if kind == "MIG-":
            part = _PART.fullmatch(entry)
            name = part[1] if part else gpu_of(entry)
            return [uuids.index(name)] if name in uuids else []
        if kind == "GPU-":
            # As many digits as tell it from the others.
            found = [i for i, uuid in enumerate(uuids) if uuid.startswith(entry)]
            is_valid = len(found) == 1 and entry.startswith(kind)
        else:
            number = _NUMBER.match(entry)
            found = [int(number[0])] if number is not None else []
            is_valid = bool(found) and found[0] < len(uuids)
        if not is_valid:
            break
        if found[0] in shown:
            return []
        shown += found
    return shown


def _text(value: Any) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)
