"""What files tell of the NVIDIA driver: nothing is loaded, and NVML is not asked.

Source: the driver's README ("The /proc interface"), and how its installers lay it out.
"""

from __future__ import annotations

import re
from glob import glob
from typing import NamedTuple

from cudaguard.elf.reader import ElfFile
from cudaguard.elf.search_path import Place, SearchPath
from cudaguard.files import os, ours, read_start

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
    return DriverFiles(
        _kernel(os.path.join(root, "proc/driver/nvidia/version")),
        library,
        os.path.basename(os.path.realpath(library)).partition(".so.")[2] if library else "",
        sum(map(_is_gpu, glob(os.path.join(root, "sys/bus/pci/devices/*")))),
    )


def _kernel(path: str) -> str:
    match = _SAID.search(_text(path))
    return match[1] if match else ""


def library_file(name: str) -> str:
    """Return the file that the loader would take for a library of this process; empty if none."""
    try:
        with ElfFile("/proc/self/exe") as file:
            place = Place(os.path.realpath("/proc/self/exe"), file, None)
            return SearchPath((place,)).find(name, place)
    except ours(OSError, ValueError):
        return ""


def _is_gpu(device: str) -> bool:
    vendor, kind = (_text(os.path.join(device, name)) for name in ("vendor", "class"))
    return vendor.strip() == _NVIDIA and kind.startswith(_DISPLAY)


def _text(path: str) -> str:
    try:
        return read_start(path, 1 << 12).decode("utf-8", "replace")
    except ours(OSError):
        return ""
