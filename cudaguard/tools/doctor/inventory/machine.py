"""System, Python, GPUs, torch and tools, as files and two compilers tell them.

NVML is not asked, no library is loaded, and nothing is imported.
Source: ``os-release(5)``, ``proc(5)``; the NVIDIA driver's README, "The /proc interface".
"""

from __future__ import annotations

import os
import platform
import re
import sys
from glob import glob

from cudaguard.files import read_start
from cudaguard.system.limits import cores
from cudaguard.system.machine import kinds_of_machine
from cudaguard.system.nvidia_driver import library_file, look_at_driver
from cudaguard.system.torch_build import folder_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_LINES = 1 << 16  # bytes of a file of which the beginning tells
# Those of the system that count where a package has none of its own.
_LIBRARIES = ("libcudart.so.13", "libcudart.so.12", "libcudnn.so.9", "libcudnn.so.8",
              "libnccl.so.2", "libnvinfer.so.10", "libstdc++.so.6")  # fmt: skip
# What a binary may need, and a program dies of SIGILL without; x86-64's, then ARM's.
_VECTOR = (
    *("sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_vnni"),
    *("avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16"),
    *("asimd", "asimddp", "sve", "sve2", "bf16", "i8mm"),
)
_NAMED = {"git_version": "commit"}
_TORCH_SAYS = re.compile(
    r"^(cuda|hip|xpu|debug|git_version)\b[^=\n]*=\s*['\"]?([^'\"\n#]+)", re.MULTILINE
)


def system(root: str = "/") -> dict[str, str | int]:
    """Return what is below Python.

    Args:
        root: Where the file system begins.
    """
    cpu = _text(root, "proc/cpuinfo")
    name = re.search(r'^PRETTY_NAME="?([^"\n]+)', _text(root, "etc/os-release"), re.MULTILINE)
    model = re.search(r"^model name\s*:[ \t]*(.+)$", cpu, re.MULTILINE)
    has = re.search(r"^(?:flags|Features)\s*:[ \t]*(.+)$", cpu, re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*(\d+) kB$", _text(root, "proc/meminfo"), re.MULTILINE)
    release = platform.uname()
    return {
        "os": name[1] if name else release.system,
        "kernel": release.release,
        "machine": release.machine,
        "libc": _libc(),
        "kind": ", ".join(kinds_of_machine(root)),
        "cpu": model[1].strip() if model else "",
        "instructions": " ".join(filter(has[1].split().__contains__, _VECTOR)) if has else "",
        "cpus": cores(),
        "memory_bytes": int(memory[1]) * 1024 if memory else 0,
    }


def _libc() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, OSError, ValueError):  # musl
        return " ".join(platform.libc_ver()).strip()


def python() -> dict[str, str]:
    """Return what interpreter this is."""
    kind = "venv" if sys.prefix != sys.base_prefix else "system"
    if os.path.isdir(os.path.join(sys.prefix, "conda-meta")):
        kind = "conda"
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "build": ", ".join(platform.python_build()),
        "compiler": platform.python_compiler(),
        "threads": "GIL" if getattr(sys, "_is_gil_enabled", lambda: True)() else "free-threaded",
        "kind": kind,
        "prefix": sys.prefix,
    }


def gpus(root: str = "/") -> dict[str, str | int | list[str]]:
    """Return the driver, and the GPUs that its kernel module lists.

    Args:
        root: Where the file system begins.
    """
    driver = look_at_driver(root)
    models = [
        match[1].strip()
        for file in sorted(glob(os.path.join(root, "proc/driver/nvidia/gpus/*/information")))
        for match in [re.search(r"^Model:\s*(.+)$", _text("", file), re.MULTILINE)]
        if match
    ]
    return {
        "driver": driver.kernel,
        "library": driver.library,
        "library_version": driver.library_version,
        "models": models,
        "pci_devices": driver.devices,
    }


def torch(version: str) -> dict[str, str]:
    """Return how torch was built, by its own file; nothing where there is none.

    Args:
        version: Of the distribution.
    """
    folder = folder_of("torch")
    if not version and not folder:
        return {}
    said: list[tuple[str, str]] = _TORCH_SAYS.findall(_text(folder, "version.py"))
    told = {_NAMED.get(k, k): v.strip() for k, v in said if v.strip() != "None"}
    return {"version": version, "folder": folder, **told}


def tools(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of the tools that build extensions, and where they are."""
    import shutil

    from cudaguard.system.toolkit import cuda_version, gcc_version, ninja_folder

    words = (environ.get("CXX") or "c++").split()
    compiler = shutil.which(words[0]) if words else ""
    nvcc = shutil.which("nvcc")
    home = environ.get("CUDA_HOME") or environ.get("CUDA_PATH")
    if home and os.access(os.path.join(home, "bin", "nvcc"), os.X_OK):
        nvcc = os.path.join(home, "bin", "nvcc")
    ninja = shutil.which("ninja") or os.path.join(ninja_folder(), "ninja") * bool(ninja_folder())
    return {
        "gcc": f"{gcc_version(compiler) or 'other'} ({compiler})" if compiler else "",
        "nvcc": f"{cuda_version([nvcc]) or 'unknown'} ({nvcc})" if nvcc else "",
        "ninja": ninja,
    }


def libraries() -> dict[str, str]:
    """Return what the loader would take from the system for CUDA's libraries, links resolved."""
    found = {name: library_file(name) for name in _LIBRARIES}
    return {name: os.path.realpath(file) for name, file in found.items() if file}


def _text(root: str, path: str) -> str:
    try:
        return read_start(os.path.join(root, path), _LINES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""
