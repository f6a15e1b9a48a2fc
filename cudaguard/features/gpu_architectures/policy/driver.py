"""Tells whether a driver is new enough for a CUDA."""

from __future__ import annotations

import re

# CUDA's major version -> the first driver for Linux that runs it. Source: CUDA release notes, "CUDA
# Toolkit and Minimum Required Driver Version for CUDA Minor Version Compatibility", and
# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
FIRST_DRIVERS = {11: "450.80.02", 12: "525.60.13", 13: "580"}

_FIRST = 100  # versions of drivers for CUDA begin there


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers a version begins with: ``(12, 4)`` for ``12.4+x``."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def first_driver(cuda: str) -> str:
    """Return the first driver for a CUDA, as in ``12.4``; empty if that is not known."""
    major = numbers(cuda)[:1]
    return FIRST_DRIVERS.get(major[0], "") if major else ""


def is_too_old(cuda: str, supported: int) -> bool:
    """Return True if a driver cannot run a CUDA: all minor versions of a major one are compatible.

    Args:
        cuda: What torch is built for, as in ``12.4``.
        supported: The newest CUDA of the driver, 12040 for 12.4; 0 if it does not say.
    """
    major = numbers(cuda)[:1]
    return bool(supported and major) and supported // 1000 < major[0]


def halves_differ(library: str, kernel: str) -> str:
    """Return how the driver's library is to its kernel module: ``newer``, ``older``, or empty.

    Args:
        library: What stands behind ``.so.`` in the library's name; on Jetson that is ``1.1``, which
            is no version of a driver.
        kernel: The version of the kernel module, empty if it is not loaded.
    """
    one, other = numbers(library), numbers(kernel)
    if not other or one[:1] < (_FIRST,) or other[:1] < (_FIRST,) or one == other:
        return ""
    return "newer" if one > other else "older"
