"""Which release of a shared library a package was built for, by its own metadata or words.

Sources: the metadata of jax-cuda12-plugin, tensorflow, torch, onnxruntime-gpu and paddlepaddle-gpu;
XLA's ``cuda_dnn.cc``, which wants the same major version of cuDNN and the same minor one or later.
"""

from __future__ import annotations

import re
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Release = tuple[int, ...]

# Module -> the distributions whose metadata tell what it was built for, the first that is there.
PACKAGES = {
    "jax": ("jax-cuda13-plugin", "jax-cuda12-plugin", "jaxlib"),
    "onnxruntime": ("onnxruntime-gpu",),
    "paddle": ("paddlepaddle-gpu",),
    "tensorflow": ("tensorflow",),
    "torch": ("torch",),
}
STEM = "libcudnn"
_WHEEL = re.compile(r"nvidia[-_.]cudnn[-_.]cu\d+", re.IGNORECASE)
_OF_NINE = 90000  # cuDNN's number for 9.0.0; 8.9.7 is 8907
_IN_VERSION = re.compile(r"\+cuda\d+\.cudnn(\d)(\d+)")  # jaxlib 0.4.23+cuda12.cudnn89


class Want(NamedTuple):
    """A release that a package was built for.

    Args:
        package: The module.
        by: The distribution that says so, with its version.
        said: How it says it, as in ``nvidia-cudnn-cu12>=9.8``.
        wheel: The distribution that has the library, empty if it names none.
        least: The earliest release that serves: major and minor.
    """

    package: str
    by: str
    said: str
    wheel: str
    least: Release


def wanted_by(
    package: str,
    version_of: Callable[[str], str | None],
    requires_of: Callable[[str], Iterable[str]],
) -> Want | None:
    """Return what a package was built for, None if its metadata do not tell.

    Args:
        package: One of `PACKAGES`.
        version_of: Returns the version of an installed distribution.
        requires_of: Returns the requirements of an installed distribution, in its words.
    """
    for dist in PACKAGES[package]:
        version = version_of(dist)
        if version is None:
            continue
        by = f"{dist} {version}"
        in_version = _IN_VERSION.search(version)
        if in_version:
            return Want(package, by, by, "", (int(in_version[1]), int(in_version[2])))
        # An extra that is for another CUDA counts as little as what is not installed.
        told = [one for one in map(_read, requires_of(dist)) if one]
        for said, wheel, least in sorted(told, key=lambda one: version_of(one[1]) is None):
            return Want(package, by, said, wheel, least)
    return None


def compiled_with(package: str, by: str, number: int) -> Want:
    """Return what a package was compiled with, by the number that cuDNN gives its releases.

    Args:
        package: One of `PACKAGES`.
        by: The distribution, with its version.
        number: As in 91301 for 9.13.1; before cuDNN 9 there is a digit less.
    """
    least = divmod(number // 100, 100 if number >= _OF_NINE else 10)
    return Want(package, by, f"cudnn>={least[0]}.{least[1]}", "", least)


def _read(requirement: str) -> tuple[str, str, Release] | None:
    """Return (the requirement, the wheel, the earliest release) of one on cuDNN."""
    if not _WHEEL.match(requirement):
        return None
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        one = Requirement(requirement)
    except InvalidRequirement:
        return None
    least = [
        tuple(int(word) for word in specifier.version.split(".")[:2] if word.isdecimal())
        for specifier in one.specifier
        if specifier.operator in ("==", ">=", "~=")
    ]
    return (f"{one.name}{one.specifier}", one.name, max(least)) if least else None


def is_older(release: Release, least: Release) -> bool:
    """Return True if a release is known, and earlier than what is wanted of its major version."""
    known = min(len(release), len(least))
    return known > 1 and release[0] == least[0] and release[:known] < least[:known]
