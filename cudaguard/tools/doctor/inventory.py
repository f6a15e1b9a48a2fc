"""What is installed here, for ``--bundle``: system, Python, GPUs, driver, torch, tools, packages.

Files tell it, and two compilers. NVML is not asked, no library is loaded, and nothing is imported.

Source: ``os-release(5)``, ``proc(5)``; the NVIDIA driver's README, "The /proc interface"; PEP 376
(INSTALLER), PEP 427 (WHEEL), PEP 610 (direct_url.json); conda's ``conda-meta``.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from glob import glob

from cudaguard.files import LARGEST, read_bytes, read_start
from cudaguard.system.child import cores
from cudaguard.system.distributions import documents, key_of
from cudaguard.system.machine import kinds_of_machine, library_file, look_at_driver
from cudaguard.system.shareable import variables
from cudaguard.system.torch_build import folder_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from cudaguard.system.distributions import Distribution
    from cudaguard.system.site import Site

    Package = dict[str, str]

_TIME = 20.0  # seconds; compilers behind wrappers and network file systems start slowly
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
_TAG = re.compile(r"^Tag:\s*(\S+)\s*$", re.MULTILINE)
# The packages that matter where CUDA libraries meet, in the form of PEP 503: all is told of these.
# Conda's names are among them.
_FIELD = frozenset(
    (
        # torch and what is compiled against it
        *("torch", "pytorch", "pytorch-cuda", "pytorch-gpu", "libtorch", "torchvision"),
        *("torchaudio", "torchcodec", "torchtext", "torchao", "torch-tensorrt", "torch-geometric"),
        *("pytorch-triton", "triton", "xformers", "flash-attn", "apex", "transformer-engine"),
        *("deepspeed", "bitsandbytes", "vllm", "sglang", "pytorch3d", "nvdiffrast", "kaolin"),
        *("gsplat", "tinycudann", "pyg-lib", "dgl", "mmcv", "detectron2", "torch-scatter"),
        *("torch-sparse", "torch-cluster", "torch-spline-conv", "mamba-ssm", "causal-conv1d"),
        # that drive it
        *("lightning", "pytorch-lightning", "accelerate", "transformers", "peft", "diffusers"),
        *("unsloth", "horovod", "ray", "mpi4py"),
        # arrays and compilers
        *("numpy", "scipy", "pandas", "pyarrow", "numba", "numba-cuda", "llvmlite", "pycuda"),
        *("warp-lang", "cuda-python", "cuda-bindings", "cuda-core", "cuda-pathfinder"),
        *("cuda-toolkit", "cudatoolkit", "isaacsim", "isaaclab", "isaacgym"),
        # other frameworks
        *("tensorflow", "tf-nightly", "keras", "flax", "paddlepaddle-gpu", "paddlepaddle"),
        *("ctranslate2", "faster-whisper", "llama-cpp-python", "mxnet"),
        # data and pictures
        *("decord", "eva-decord", "decord2", "av", "imageio-ffmpeg", "pillow", "open3d"),
        *("pymeshlab", "faiss", "cudf", "cuml", "cugraph", "rmm", "pylibraft", "dask-cuda"),
        # what builds and installs
        *("setuptools", "ninja", "cmake", "pybind11", "nanobind", "wrapt", "cudaguard"),
        # conda's own: the runtimes that others load
        *("libgcc", "libgcc-ng", "libstdcxx", "libstdcxx-ng", "libgomp", "llvm-openmp", "openmp"),
        *("mkl", "libblas", "libopenblas", "cudnn", "nccl", "gcc-linux-64", "gxx-linux-64"),
    )
)
_BEGINNINGS = (
    *("nvidia-", "cupy", "onnxruntime", "tensorrt", "opencv", "jax", "tensorflow-", "spconv"),
    *("faiss-", "cuda-", "libcu", "libnv", "libnpp", "cudf-", "cuml-", "rmm-", "pylibraft-"),
    *("flash-attn-", "flashinfer", "intel-openmp", "libtorch", "transformer-engine-"),
)


def inventory(site: Site) -> dict[str, Any]:
    """Return what an issue report has to say of an environment.

    Args:
        site: The environment.
    """
    of_field, others = packages(site.distributions)
    others.update((os.path.basename(one.path), "unreadable") for one in site.unreadable)
    of_conda, other_conda = conda_packages()
    return {
        "system": system(),
        "python": python(),
        "gpu": gpus(),
        "torch": torch(site.version("torch") or ""),
        "tools": tools(site.environ),
        "libraries": libraries(),
        "variables": variables(site.environ),
        "packages": of_field,
        "other_packages": others,
        "conda": of_conda,
        "other_conda": other_conda,
    }


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

    words = (environ.get("CXX") or "c++").split()
    compiler = shutil.which(words[0]) if words else ""
    nvcc = shutil.which("nvcc")
    home = environ.get("CUDA_HOME") or environ.get("CUDA_PATH")
    if home and os.access(os.path.join(home, "bin", "nvcc"), os.X_OK):
        nvcc = os.path.join(home, "bin", "nvcc")
    scripts = os.path.dirname(sys.executable)  # of an environment that may not be active
    return {
        "gcc": f"{gcc_version(compiler) or 'other'} ({compiler})" if compiler else "",
        "nvcc": f"{cuda_version(nvcc) or 'unknown'} ({nvcc})" if nvcc else "",
        "ninja": shutil.which("ninja") or shutil.which("ninja", path=scripts) or "",
    }


def _said(*command: str) -> str:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=_TIME, check=False, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


def cuda_version(nvcc: str) -> str:
    """Return the CUDA version of an nvcc, as in ``13.0``; empty if unknown."""
    match = re.search(r"release (\d+\.\d+)", _said(nvcc, "--version"))
    return match[1] if match else ""


def gcc_version(compiler: str) -> str:
    """Return the version of a compiler that is GCC, as in ``12.2.0``; empty for any other."""
    if "Free Software Foundation" not in _said(compiler, "--version"):
        return ""
    return _said(compiler, "-dumpfullversion", "-dumpversion").strip()


def libraries() -> dict[str, str]:
    """Return what the loader would take from the system for CUDA's libraries, links resolved."""
    found = {name: library_file(name) for name in _LIBRARIES}
    return {name: os.path.realpath(file) for name, file in found.items() if file}


def packages(dists: Iterable[Distribution]) -> tuple[list[Package], dict[str, str]]:
    """Return the packages of the field with all that is known, and the versions of the others."""
    found, others = [], {}
    for dist in sorted(dists, key=lambda dist: dist.key):
        if is_of_field(dist.key):
            found.append({"name": dist.name, "version": dist.version, **_origin(dist)})
        else:
            others[dist.name] = dist.version
    return found, others


def _origin(dist: Distribution) -> dict[str, str]:
    tag = _TAG.search(_metadata(dist.metadata, "WHEEL"))
    direct = _metadata(dist.metadata, "direct_url.json")
    installer = _metadata(dist.metadata, "INSTALLER").strip().partition("\n")[0]
    return {"build": tag[1] if tag else "", "source": _direct(direct) or installer}


def _direct(text: str) -> str:
    """Return where a package came from that no index had, in a few words; else nothing."""
    try:
        said = json.loads(text)
        url = str(said["url"])
        version = said.get("vcs_info")
        if isinstance(version, dict):
            return f"{version.get('vcs')}+{url}@{version.get('commit_id')}"
        folder = said.get("dir_info")
        is_editable = isinstance(folder, dict) and folder.get("editable") is True
        return f"editable {url}" if is_editable else url
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""  # no such file, or nothing of use in it


def conda_packages(prefix: str = sys.prefix) -> tuple[list[Package], dict[str, str]]:
    """Return the same of conda's packages, Python's and others; nothing outside of conda.

    Args:
        prefix: The folder of the environment.
    """
    found, others = [], {}
    for name, version, build, document in documents(prefix):
        if is_of_field(name):
            channel = _channel(document)
            found.append({"name": name, "version": version, "build": build, "source": channel})
        else:
            others[name] = version
    return found, others


def _channel(path: str) -> str:
    """Return the channel of a package, without the folder of its platform."""
    try:
        said = json.loads(read_bytes(path, LARGEST))
        channel = str(said.get("channel") or said.get("schannel") or "conda")
    except (OSError, ValueError, AttributeError, RecursionError):
        return "conda"
    return re.sub(r"/(?:noarch|linux-\w+|osx-\w+|win-\w+)/?$", "", channel)


def is_of_field(name: str) -> bool:
    """Return True if a package of pip's or conda's is one of the field's."""
    key = key_of(name)
    return key in _FIELD or key.startswith(_BEGINNINGS)


def _text(root: str, path: str) -> str:
    try:
        return read_start(os.path.join(root, path), _LINES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def _metadata(folder: str, name: str) -> str:
    try:
        return read_bytes(os.path.join(folder, name), LARGEST).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""
