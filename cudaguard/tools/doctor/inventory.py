"""What is installed here, for ``--bundle``.

Files tell it, and two compilers. NVML is not asked, no library is loaded, and nothing is imported.

Source: ``os-release(5)``, ``proc(5)``; the NVIDIA driver's README, "The /proc interface"; PEP 376
(INSTALLER), PEP 427 (WHEEL), PEP 610 (direct_url.json); conda's ``conda-meta``.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
from glob import glob

from cudaguard.files import LARGEST, read_bytes, text_of
from cudaguard.system.child import run_command
from cudaguard.system.machine import kinds_of_machine, library_file, look_at_driver
from cudaguard.system.packages import documents
from cudaguard.system.processes import cores
from cudaguard.system.torch_build import folder_of
from cudaguard.tools.common import variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from cudaguard.system.packages import Distribution, Site

    Package = dict[str, str]

_TIME = 20.0  # seconds; compilers behind wrappers and network file systems start slowly
# Those of the system that count where a package has none of its own.
_LIBRARIES = ("libcudart.so.13", "libcudart.so.12", "libcudnn.so.9", "libcudnn.so.8",
              "libnccl.so.2", "libnvinfer.so.10", "libstdc++.so.6")  # fmt: skip
# What a binary may need, and a program dies of SIGILL without; x86-64's, then ARM's.
_VECTOR = (
    *("sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_vnni"),
    *("avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16"),
    *("asimd", "asimddp", "sve", "sve2", "bf16", "i8mm"),
)

# What is looked for in files of the system, in what nvcc says, and in metadata.
_FEATURES = re.compile(r"^(?:flags|Features)[ \t]*:[ \t]*(.+)$", re.MULTILINE)
_MEMORY = re.compile(r"^MemTotal:[ \t]*(\d+) kB$", re.MULTILINE)
_OS_NAME = re.compile(r'^PRETTY_NAME="?([^"\n]+)', re.MULTILINE)
_CPU = re.compile(r"^model name[ \t]*:[ \t]*(.+)$", re.MULTILINE)
_NVCC = re.compile(r"release (\d+\.\d+)")
_TAG = re.compile(r"^Tag:[ \t]*([^\s]+)", re.MULTILINE)


def inventory(site: Site) -> dict[str, Any]:
    """Return what an issue report has to say of an environment."""
    compiled, others = packages(site.installed.found)
    others.update((os.path.basename(path), "unreadable") for path, _ in site.installed.unreadable)
    of_conda, other_conda = conda_packages()
    # What the loader would take from the system for CUDA's libraries, links resolved.
    files = {name: library_file(name) for name in _LIBRARIES}
    return {
        "system": system(),
        "python": python(),
        "gpu": gpus(),
        "torch": torch(site.version("torch") or ""),
        "tools": tools(site.environ),
        "libraries": {name: os.path.realpath(file) for name, file in files.items() if file},
        "variables": variables(site.environ),
        "packages": compiled,
        "other_packages": others,
        "conda": of_conda,
        "other_conda": other_conda,
    }


def system(root: str = "/") -> dict[str, str | int]:
    """Return what is below Python, in the file system that begins at root."""
    cpu = text_of(root, "proc/cpuinfo")
    has = _found(_FEATURES, cpu).split()
    memory = _found(_MEMORY, text_of(root, "proc/meminfo"))
    release = platform.uname()
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, OSError, ValueError):  # musl
        libc = " ".join(platform.libc_ver()).strip()
    return {
        "os": _found(_OS_NAME, text_of(root, "etc/os-release")) or release.system,
        "kernel": release.release,
        "machine": release.machine,
        "libc": libc,
        "kind": ", ".join(kinds_of_machine(root)),
        "cpu": _found(_CPU, cpu).strip(),
        "instructions": " ".join(filter(has.__contains__, _VECTOR)),
        "cpus": cores(),
        "memory_bytes": int(memory or 0) * 1024,
    }


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
    """Return the driver, and the GPUs that its kernel module lists."""
    driver = look_at_driver(root)
    files = sorted(glob(os.path.join(root, "proc/driver/nvidia/gpus/*/information")))
    texts = "\n".join(text_of(file) for file in files)
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
        text_of(folder, "version.py"),
        re.MULTILINE,
    )
    built = {key: value.strip() for key, value in said if value.strip() != "None"}
    return {"version": version, "folder": folder, **built}


def tools(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of the tools that build extensions, and where they are."""
    words = (environ.get("CXX") or "c++").split()
    compiler = (words and shutil.which(words[0])) or ""
    is_gcc = compiler and "Free Software Foundation" in _said(compiler, "--version")
    gcc = _said(compiler, "-dumpfullversion", "-dumpversion").strip() if is_gcc else ""
    nvcc = shutil.which("nvcc") or ""
    home = environ.get("CUDA_HOME") or environ.get("CUDA_PATH")
    if home and os.access(os.path.join(home, "bin", "nvcc"), os.X_OK):
        nvcc = os.path.join(home, "bin", "nvcc")
    cuda = _found(_NVCC, _said(nvcc, "--version")) if nvcc else ""
    scripts = os.path.dirname(sys.executable)  # of an environment that may not be active
    return {
        "gcc": f"{gcc or 'other'} ({compiler})" if compiler else "",
        "nvcc": f"{cuda or 'unknown'} ({nvcc})" if nvcc else "",
        "ninja": shutil.which("ninja") or shutil.which("ninja", path=scripts) or "",
    }


def _said(*command: str) -> str:
    try:
        ended = run_command(command, {**os.environ, "LC_ALL": "C"}, _TIME)
    except OSError:
        return ""
    return f"{ended.output}{ended.errors}" if ended.status == 0 else ""


def packages(dists: Iterable[Distribution]) -> tuple[list[Package], dict[str, str]]:
    """Return packages with compiled code, all that is known of each; and the others' versions.

    What does not say what it is (installed by a system's package manager) counts as compiled.
    """
    compiled: list[Package] = []
    others = {}
    for dist in sorted(dists, key=lambda dist: dist.key):
        build = _found(_TAG, text_of(dist.metadata, "WHEEL"))
        if build.endswith("-none-any"):
            others[dist.name] = dist.version
        else:
            installer = text_of(dist.metadata, "INSTALLER").strip().partition("\n")[0]
            known = {"name": dist.name, "version": dist.version, "build": build}
            compiled.append({**known, "source": _address(dist) or installer})
    return compiled, others


def _address(dist: Distribution) -> str:
    """Return where a package came from that no index had; else nothing."""
    try:
        said = json.loads(text_of(dist.metadata, "direct_url.json"))
        url, commit = str(said["url"]), said.get("vcs_info", {}).get("commit_id")
        is_editable = said.get("dir_info", {}).get("editable")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""  # no such file, or nothing of use in it
    return f"{url}@{commit}" if commit else f"editable {url}" if is_editable else url


def conda_packages(prefix: str = sys.prefix) -> tuple[list[Package], dict[str, str]]:
    """Return the same of conda's packages, Python's and others; nothing outside of conda."""
    compiled: list[Package] = []
    others = {}
    for name, version, build, document in documents(prefix):
        try:
            said = json.loads(read_bytes(document, LARGEST))
            channel = str(said.get("channel") or "conda").rstrip("/")
        except (OSError, ValueError, AttributeError, RecursionError):
            channel = "conda"
        if channel.endswith("/noarch"):
            others[name] = version
        else:
            compiled.append({"name": name, "version": version, "build": build, "source": channel})
    return compiled, others


def _found(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""
