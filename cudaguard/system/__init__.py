"""Facts: packages, devices, driver, toolkits, processes. Looking changes nothing.

Here is what is known at once: attributes of imported modules, a driver.
"""

from __future__ import annotations

from cudaguard.files import os, own_errors
from cudaguard.model import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

# Made by the kernel's half of the driver; the second one under Windows' Linux, the last one on
# every Jetson, where there is no other before JetPack 5.
DRIVER_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvmap")


# Where a file comes from: Python itself, an installed package, the user.
STANDARD, INSTALLED, LOCAL = "standard", "installed", "local"
_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep
_PACKAGES = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


def origin_of_file(file: str) -> str:
    """Return `STANDARD`, `INSTALLED` or `LOCAL`, by the folder of a source or library."""
    if any(folder in file for folder in _PACKAGES):  # which may lie in that of Python
        return INSTALLED
    return STANDARD if file.startswith((_STANDARD_LIBRARY, "<frozen ")) else LOCAL


def peek(module: object, name: str) -> Any:
    """Return an attribute of a module, None if it has none; a lazy module is not loaded by it."""
    if module is None:  # not imported, which is asked at each import
        return None
    try:
        return object.__getattribute__(module, "__dict__").get(name)
    except own_errors(AttributeError):
        return None


def has_kernel_driver() -> bool:
    """Return True if the kernel's half of an NVIDIA driver is loaded."""
    return any(os.path.exists(file) for file in DRIVER_FILES)
