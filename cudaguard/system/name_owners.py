"""Owners of functions: the library that defines one, by its name, and the package that has it.

They are read from ``name_owners.txt`` when something is explained.
"""

from __future__ import annotations

import re
from functools import cache

from cudaguard.files import os, packaged_text
from cudaguard.model import NamedTuple
from cudaguard.system.runtimes import RUNTIMES

FFMPEG = "ffmpeg"  # the package, of which a library may need another release
# What a library is to the one that needs it.
NVIDIA, TORCH, PYTHON, RUNTIME, OTHER = _KINDS = "nvidia", "torch", "python", "runtime", "other"


class NameOwner(NamedTuple):
    """Library that defines a family of names."""

    kind: str  # one of `NVIDIA`, `TORCH`, `PYTHON`, `RUNTIME` (of C++ or OpenMP) and `OTHER`
    library: str  # the library, without ``.so``
    title: str  # what it is called in a sentence


_OF_NVIDIA = {library: runtime for library, runtime in RUNTIMES.items() if runtime.names}
NOBODY = NameOwner("", "", "")


def owner_of(name: str) -> NameOwner:
    """Return who defines a function; `NOBODY` for one of nobody that is known here."""
    return next((owner for pattern, owner in _compiled() if pattern.match(name)), NOBODY)


@cache
def _compiled() -> tuple[tuple[re.Pattern[str], NameOwner], ...]:
    own = ((NVIDIA, library, of.names, of.title) for library, of in _OF_NVIDIA.items())
    rows = (*own, *((kind, *row) for kind in _KINDS for row in _rows()[kind]))
    return tuple(
        (re.compile(names), NameOwner(kind, lib, title)) for kind, lib, names, title in rows
    )


@cache
def _rows() -> dict[str, list[list[str]]]:
    """Return the rows of the data file by their first word."""
    rows: dict[str, list[list[str]]] = {}
    for line in packaged_text(f"{os.path.dirname(__file__)}/name_owners.txt").splitlines():
        if line and line[0] != "#":
            kind, *row = line.split(" ", 3)
            rows.setdefault(kind, []).append(row)
    return rows


@cache
def _packages(kind: str) -> dict[str, str]:
    """Return the package of each library, for rows that begin with a word."""
    rows = (" ".join(row).split() for row in _rows()[kind])
    return {library: package for package, *libraries in rows for library in libraries}


# Those whose number is CUDA's major version.
_OF_CUDA = (
    "libcudart", "libcublas", "libcublasLt", "libnvrtc", "libnvJitLink", "libcupti", "libnvblas",
    "libnvfatbin", "libnvjpeg",
)  # fmt: skip
# Numbers of their own: (library, number) -> CUDA's.
_NUMBERS = {
    ("libcufft", "10"): "11", ("libcufft", "11"): "12", ("libcufft", "12"): "13",
    ("libcusolver", "12"): "13", ("libcusparse", "11"): "11",
}  # fmt: skip
_LIBRARY = re.compile(
    r"(lib[A-Za-z0-9_+-]{1,80}?)"
    r"(?:_(?:adv|cnn|ops|engines|graph|heuristic|plugin)\w{0,40}|-builtins)?(?:\.alt)?\.so(?:\.(\d+))?"
)


def _parts(soname: str) -> tuple[str, str]:
    """Return a library and its number, which may be empty; of a part of cuDNN those of cuDNN."""
    match = _LIBRARY.match(soname)
    return (match[1], match[2] or "") if match is not None else ("", "")


# Windows has the number in the name: cublas64_12.dll, nvrtc64_120_0.dll, cudart64_110.dll.
_OF_WINDOWS = re.compile(r"(?i)(cu[a-z]\w*?|nv\w+?|cudnn\w*?)(?:64)?_(\d\d?)\d?(?:_\d+)?\.dll$")
# What jax calls them.
_TITLES = {runtime.title: f"{library}.so" for library, runtime in _OF_NVIDIA.items()}
_TITLES.update({"nvvm.dll": "libnvvm.so", "CUDA": "libcudart.so"})


def linux_name(library: str) -> str:
    """Return what Linux calls a library of Windows, or one that is named by its title."""
    match = _OF_WINDOWS.match(library)
    return f"lib{match[1]}.so.{match[2]}" if match else _TITLES.get(library, library)


def cuda_of(soname: str) -> str:
    """Return the major version of CUDA that a library belongs to; empty if its name hides it."""
    library, number = _parts(soname)
    is_cudas = library in _OF_CUDA or library.startswith("libnpp")
    return number if is_cudas else _NUMBERS.get((library, number), "")


def requirement_of(soname: str) -> str:
    """Return what pip is to install for one of NVIDIA's libraries; empty where no wheel has it.

    Where the name does not tell for which CUDA, ``cu12`` stands for it. There are no wheels for
    CUDA before 11.
    """
    wheel, (library, number) = wheel_of(soname), _parts(soname)
    if not wheel or int(cuda_of(soname) or 11) < 11:
        return ""
    return f"{wheel}=={number}.*" if library in ("libcudnn", "libnvinfer") and number else wheel


def wheel_of(soname: str) -> str:
    """Return the distribution on PyPI that has one of NVIDIA's libraries; empty for others.

    Where the name does not tell for which CUDA, ``cu12`` stands for it.
    """
    library, _ = _parts(soname)
    middle = RUNTIMES[library].wheel if library in RUNTIMES else ""
    wheel = f"nvidia-{middle.replace('_', '-')}" if middle else _packages("wheel").get(library, "")
    if wheel in ("", "tensorrt"):
        return wheel
    cuda = cuda_of(soname) or "12"
    no_suffix = cuda == "13" and not wheel.endswith(("cudnn", "nccl", "cusparselt", "nvshmem"))
    return wheel if no_suffix else f"{wheel}-cu{cuda}"


def distribution_with(module: str) -> str:
    """Return the distribution that has an extension, by the beginning of its name, or that name."""
    return _packages("extension").get(module, module)


def debian_package_of(soname: str) -> str:
    """Return the package of Debian and Ubuntu that has a library; empty if that is not known."""
    packages = _packages("debian")
    return packages.get(soname, packages.get(soname.partition(".so")[0], ""))
