"""Tells whether a driver is new enough for a CUDA."""

from __future__ import annotations

import re

# CUDA's major version -> the first driver for Linux that runs it. Source: CUDA release notes, "CUDA
# Toolkit and Minimum Required Driver Version for CUDA Minor Version Compatibility", and
# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
FIRST_DRIVERS = {11: "450.80.02", 12: "525.60.13", 13: "580"}


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers a version begins with: ``(12, 4)`` for ``12.4+x``."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def driver_wanted(cuda: str, driver: str) -> str:
    """Return the first driver for a CUDA if a driver is older, empty if it will do.

    Args:
        cuda: What torch is built for, as in ``12.4``.
        driver: As in ``580.65.06``.
    """
    major = numbers(cuda)[:1]
    first = FIRST_DRIVERS.get(major[0], "") if major else ""
    return first if first and driver and numbers(driver) < numbers(first) else ""
