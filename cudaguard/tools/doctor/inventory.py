"""Inventory of this environment, for ``--bundle``.

Files tell it. NVML is not asked, no library is loaded, and nothing is imported.

Source: ``os-release(5)``, ``proc(5)``; the NVIDIA driver's README, "The /proc interface"; PEP 376
(INSTALLER), PEP 427 (WHEEL), PEP 610 (direct_url.json); conda's ``conda-meta``.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from glob import glob

from cudaguard.files import text_in
from cudaguard.model import TYPE_CHECKING
from cudaguard.system.machine import kinds_of_machine, look_at_driver
from cudaguard.system.packages import documents
from cudaguard.system.processes import cores
from cudaguard.system.torch_build import folder_of
from cudaguard.tools.common import variables

if TYPE_CHECKING:
    from typing import Any

    from cudaguard.system.packages import Site

    Package = dict[str, str]

# What is looked for in files of the system, and in metadata.
_OS_NAME = re.compile(r'^PRETTY_NAME="?([^"\n]+)', re.MULTILINE)
_CPU = re.compile(r"^model name[ \t]*:[ \t]*(.+)$", re.MULTILINE)
_TAG = re.compile(r"^Tag:[ \t]*([^\s]+)", re.MULTILINE)


def inventory(site: Site) -> dict[str, Any]:
    """Return what an issue report has to say of an environment."""
    packages = {
        dist.name: f"{dist.version} {_found(_TAG, text_in(dist.metadata, 'WHEEL'))}".rstrip()
        for dist in sorted(site.installed.found, key=lambda dist: dist.key)
    }
    packages.update((os.path.basename(path), "unreadable") for path, _ in site.installed.unreadable)
    return {
        "system": system(),
        "python": python(),
        "gpu": gpus(),
        "torch": torch(site.version("torch") or ""),
        "variables": variables(site.environ),
        "packages": packages,
        "conda": {name: f"{version} {build}" for name, version, build, _ in documents(sys.prefix)},
    }


def system(root: str = "/") -> dict[str, str | int]:
    """Return what is below Python, in the file system that begins at root."""
    cpu = text_in(root, "proc/cpuinfo")
    release = platform.uname()
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, OSError, ValueError):  # musl
        libc = " ".join(platform.libc_ver()).strip()
    return {
        "os": _found(_OS_NAME, text_in(root, "etc/os-release")) or release.system,
        "kernel": release.release,
        "machine": release.machine,
        "libc": libc,
        "kind": ", ".join(kinds_of_machine(root)),
        "cpu": _found(_CPU, cpu).strip(),
        "cpus": cores(),
    }


def python() -> dict[str, str]:
    """Return what interpreter this is."""
    kind = "venv" if sys.prefix != sys.base_prefix else "system"
    if os.path.isdir(os.path.join(sys.prefix, "conda-meta")):
        kind = "conda"
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "threads": "GIL" if getattr(sys, "_is_gil_enabled", lambda: True)() else "free-threaded",
        "kind": kind,
        "prefix": sys.prefix,
    }


def gpus(root: str = "/") -> dict[str, str | int | list[str]]:
    """Return the driver, and the GPUs that its kernel module lists."""
    driver = look_at_driver(root)
    files = sorted(glob(os.path.join(root, "proc/driver/nvidia/gpus/*/information")))
    texts = "\n".join(text_in(file) for file in files)
    return {
        "driver": driver.kernel,
        "library": driver.library,
        "library_version": driver.library_version,
        "models": [
            line.partition(":")[2].strip() for line in texts.splitlines() if "Model:" in line[:6]
        ],
        "pci_devices": driver.devices,
    }


def torch(version: str) -> dict[str, str]:
    """Return how torch was built, by its own file; nothing where there is none."""
    folder = folder_of("torch")
    if not version and not folder:
        return {}
    said = re.findall(
        r"^(cuda|hip|xpu|debug|git_version)\b[^=\n]*=\s*['\"]?([^'\"\n#]+)",
        text_in(folder, "version.py"),
        re.MULTILINE,
    )
    built = {key: value.strip() for key, value in said if value.strip() != "None"}
    return {"version": version, "folder": folder, **built}


def _found(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""
