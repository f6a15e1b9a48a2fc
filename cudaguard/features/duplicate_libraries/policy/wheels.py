"""The CUDA release that a wheel of NVIDIA's is for."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_SUFFIX = re.compile(r"(?:-cu|-cuda)(\d\d)(?:\d|x)?$")
# From CUDA 13 on these have no suffix, and their version is CUDA's.
_PLAIN = re.compile(
    r"nvidia-(?:cuda-(?:runtime|nvrtc|cupti|nvcc|cccl|crt)|cublas|nvjitlink|nvtx|nvvm)"
)


def cuda_of(key: str, version: str) -> str:
    """Return the major version of CUDA that a wheel of NVIDIA's is for, empty if that is open.

    Args:
        key: Its name as names are compared, as in ``nvidia-cublas-cu12``.
        version: Its version.
    """
    if not key.startswith(("nvidia-", "cupy-")):
        return ""
    match = _SUFFIX.search(key)
    if match:
        return match[1]
    return version.partition(".")[0] if _PLAIN.fullmatch(key) else ""


def families(versions: Mapping[str, str]) -> dict[str, list[str]]:
    """Return CUDA's major version -> the wheels for it.

    Args:
        versions: Of all that is installed, by names as they are compared.
    """
    found: dict[str, list[str]] = {}
    for key, version in sorted(versions.items()):
        major = cuda_of(key, version)
        if major:
            found.setdefault(major, []).append(key)
    return found
