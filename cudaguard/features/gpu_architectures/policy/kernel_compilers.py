"""Tells whether CuPy and numba-cuda can compile kernels for a GPU."""

from __future__ import annotations

from cudaguard.features.gpu_architectures.architectures import (
    CUPY_CAPS,
    CUPY_COMPARES_NUMBERS,
    CUPY_NO_CAP,
    KNOWN,
    NUMBA_EXACT_FROM,
    NUMBA_SINCE,
)
from cudaguard.features.gpu_architectures.policy.architectures import (
    CANNOT_RUN,
    FINE,
    NO_JIT,
    UNKNOWN,
    runs_on,
)
from cudaguard.system.gpus import architecture

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Pair = tuple[int, int]  # a compute capability, or a release


def parts(version: object) -> tuple[int, int] | None:
    """Return the first two numbers of a version, as in ``14.2.0``; None if it has none."""
    words = str(version).split(".")[:2]
    if len(words) < 2 or not all(word.isdecimal() for word in words):
        return None
    return int(words[0]), int(words[1])


def cupy_asks(device: Pair, nvrtc: Pair, cupy: Pair) -> int:
    """Return the architecture that CuPy asks NVRTC for.

    Args:
        device: Compute capability.
        nvrtc: Release of NVRTC.
        cupy: Release of CuPy.
    """
    wanted = architecture(device)
    caps = next(caps for since, caps in reversed(CUPY_CAPS) if since <= cupy)
    cap = next((cap for since, cap in reversed(caps) if since <= nvrtc), None)
    if cap is None or wanted in CUPY_NO_CAP:
        return wanted
    key: Callable[[int], object] = int if cupy >= CUPY_COMPARES_NUMBERS else str
    return min(wanted, cap, key=key)  # type: ignore[arg-type]  # both are ordered


def cupy_verdict(device: Pair, nvrtc: Pair | None, cupy: Pair | None, *, is_ptx: bool) -> str:
    """Return what becomes of CuPy's kernels on a device.

    Args:
        device: Compute capability.
        nvrtc: Release of the NVRTC that serves it, None if not known.
        cupy: Its own release, None if not known.
        is_ptx: True if the user has it make PTX, which the driver compiles.

    Returns:
        ``NO_JIT``: NVRTC refuses to compile. ``CANNOT_RUN``: it compiles for another device. Else
        ``FINE``, or ``UNKNOWN``.
    """
    if nvrtc is None or nvrtc not in KNOWN or cupy is None:
        return UNKNOWN
    asked = cupy_asks(device, nvrtc, cupy)
    if asked not in KNOWN[nvrtc]:
        return NO_JIT
    return FINE if runs_on(f"{'compute' if is_ptx else 'sm'}_{asked}", device) else CANNOT_RUN


def numba_verdict(device: Pair, compilers: Pair | None, numba: Pair | None, *, links: bool) -> str:
    """Return whether numba-cuda makes kernels for a device: ``NO_JIT``, ``FINE`` or ``UNKNOWN``.

    Args:
        device: Compute capability.
        compilers: Release of its NVRTC, or of its nvJitLink; None if not known.
        numba: Its own release, None if not known.
        links: True for nvJitLink, which always assembles for the very device.
    """
    if compilers is None or compilers not in KNOWN or numba is None or numba < NUMBA_SINCE:
        return UNKNOWN
    known, wanted = KNOWN[compilers], architecture(device)
    is_close_enough = not links and device < NUMBA_EXACT_FROM and wanted > min(known)
    return FINE if wanted in known or is_close_enough else NO_JIT


def release_that_fits(major: int, fits: Callable[[Pair], bool]) -> Pair | None:
    """Return the first release of CUDA that serves: of a major one, or else the last of another.

    Args:
        major: The major release that is preferred.
        fits: Returns True if a release knows the devices.
    """
    fitting = [release for release in KNOWN if fits(release)]
    same = [release for release in fitting if release[0] == major]
    return min(same, default=None) or max(fitting, default=None)
