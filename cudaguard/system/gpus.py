"""GPUs, and what compiles for them: the values that are passed around."""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    Pair = tuple[int, int]  # a compute capability, or a release of CUDA


class Torch(NamedTuple):
    """A torch that was built for CUDA.

    Args:
        release: As it says itself, ``2.6.0+cu124``.
        version: Its first two numbers; empty if it has none.
        flags: What it has code for, as in ``("sm_80", "compute_90")``; empty if not known.
    """

    release: str
    version: tuple[int, ...]
    flags: tuple[str, ...]


class Compiler(NamedTuple):
    """A copy of NVRTC, or a ptxas.

    Args:
        path: Its file.
        name: What it is asked for by: ``libnvrtc.so.12``, ``ptxas``, ``ptxas-blackwell``.
        release: The release of CUDA that it belongs to, as in (12, 8); None if not known.
    """

    path: str
    name: str
    release: Pair | None


class UnknownDevice(NamedTuple):
    """A device that a compiler does not know.

    Args:
        device: Its compute capability.
        used: The compiler that is used for it.
        better: An installed one that knows it; None if there is none.
    """

    device: Pair
    used: Compiler
    better: Compiler | None


class Cure(NamedTuple):
    """What is to be installed for a GPU.

    Args:
        release: The first release of CUDA, of the major one that is used, whose compilers know it;
            None if there is none.
        wheel: The distribution that has them.
        torch: Which releases of torch have code for it, as pip takes it; empty if not known.
        cuda: The CUDA that the first of those is built with, or None.
    """

    release: Pair | None
    wheel: str
    torch: str
    cuda: Pair | None


def architecture(device: Pair) -> int:
    """Return the number of a compute capability, 86 for (8, 6): ``sm_86``."""
    return device[0] * 10 + device[1]


def dotted(pair: Pair | None) -> str:
    """Return a release or a compute capability as it is written, ``12.8``."""
    return "?" if pair is None else f"{pair[0]}.{pair[1]}"
