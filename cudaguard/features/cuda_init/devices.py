"""CUDA devices and contexts, as they are handed to a program."""

from __future__ import annotations

from cudaguard.model import Record


class Device(Record):
    """A CUDA device as this process sees it.

    Args:
        ordinal: Its number among the visible devices. NVML counts differently; never mix them.
        uuid: As in ``GPU-8f3c...``; empty if the driver does not say.
        pci_bus_id: As in ``0000:3b:00.0``; empty if the driver does not say.
        name: Its product name.
    """

    __slots__ = ("name", "ordinal", "pci_bus_id", "uuid")
    ordinal: int
    uuid: str
    pci_bus_id: str
    name: str

    def __init__(self, ordinal: int, uuid: str = "", pci_bus_id: str = "", name: str = "") -> None:
        self._fill(ordinal=ordinal, uuid=uuid, pci_bus_id=pci_bus_id, name=name)


class ContextHandle(Record):
    """A primary context that `create_context` has retained for the life of the process.

    Args:
        device: The device it is on.
        bytes: Device memory that it took, where NVML tells; else None.
    """

    __slots__ = ("bytes", "device")
    device: Device
    bytes: int | None

    def __init__(self, device: Device, bytes: int | None = None) -> None:
        self._fill(device=device, bytes=bytes)
