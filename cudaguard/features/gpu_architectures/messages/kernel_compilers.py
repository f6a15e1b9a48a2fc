"""The wording of what is said of GPUs for which CuPy or numba-cuda cannot compile."""

from __future__ import annotations

from typing import NamedTuple

from cudaguard.features.gpu_architectures.messages.architectures import compiler_line, named
from cudaguard.model import Finding
from cudaguard.system.gpus import architecture, dotted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cudaguard.system.gpus import Compiler

    Pair = tuple[int, int]

CUPY, NUMBA = "CG897", "CG898"


class Better(NamedTuple):
    """What supports devices that a compiler does not know.

    Args:
        release: A release of CUDA whose compilers do; None if none is known.
        wheels: The distributions that have them, if it is one of the same major release.
    """

    release: Pair | None
    wheels: tuple[str, ...]


def cupy_refused(
    release: str,
    devices: Mapping[int, Pair],
    nvrtc: Compiler,
    asked: Sequence[int],
    known: Sequence[int],
    better: Better,
    *,
    loud: bool,
) -> Finding:
    """NVRTC refuses what CuPy asks it for.

    Args:
        release: Of CuPy.
        devices: Those that are concerned, by ordinal.
        nvrtc: The NVRTC that CuPy loads.
        asked: The architectures that CuPy asks it for.
        known: What it can compile for.
        better: What supports them.
        loud: True if it is worth a warning.
    """
    remedy, command = _newer("cupy", nvrtc, better, "NVRTC")
    return Finding(
        CUPY,
        f"CuPy cannot compile for {named(devices)}: its NVRTC {dotted(nvrtc.release)} does not "
        f"support {_sm(asked)}.",
        severity="warning" if loud else "info",
        evidence=(f"CuPy {release} asks for {_sm(asked)}", compiler_line(nvrtc, known)),
        consequence=(
            "every kernel, also of cupy.arange(), fails with 'nvrtc: error: invalid value for "
            "--gpu-architecture (-arch)'."
        ),
        remedy=remedy,
        command=command,
        links=("https://github.com/cupy/cupy/issues/9475",),
    )


def cupy_for_others(
    release: str,
    devices: Mapping[int, Pair],
    nvrtc: Compiler,
    asked: Sequence[int],
    better: Better,
    *,
    loud: bool,
) -> Finding:
    """CuPy has machine code made that is not for its devices. The arguments are as above."""
    remedy, command = _newer("cupy", nvrtc, better, "NVRTC")
    return Finding(
        CUPY,
        f"CuPy with NVRTC {dotted(nvrtc.release)} compiles for {_sm(asked)}, not for "
        f"{named(devices)}.",
        severity="warning" if loud else "info",
        evidence=(
            f"CuPy {release} asks for the newest architecture it expects this NVRTC to support",
            compiler_line(nvrtc, ()),
        ),
        consequence=(
            "every kernel, also of cupy.arange(), fails with 'CUDA_ERROR_NO_BINARY_FOR_GPU: no "
            "kernel image is available for execution on the device'."
        ),
        remedy=f"{remedy}; or set CUPY_COMPILE_WITH_PTX=1 before `import cupy`, so that the driver "
        "compiles for this GPU",
        command=command,
        links=("https://github.com/cupy/cupy/issues/9121",),
    )


def numba_lacks(
    release: str,
    devices: Mapping[int, Pair],
    compilers: Compiler,
    known: Sequence[int],
    better: Better,
    *,
    loud: bool,
) -> Finding:
    """What numba-cuda compiles or links with does not know devices.

    Args:
        release: Of numba-cuda.
        devices: Those that are concerned, by ordinal.
        compilers: Its NVRTC, or its nvJitLink.
        known: What that can compile for.
        better: What supports them.
        loud: True if it is worth a warning.
    """
    links = compilers.name.startswith("libnvJitLink")
    title = "nvJitLink" if links else "NVRTC"
    remedy, command = _newer("numba-cuda", compilers, better, "NVRTC, NVVM and nvJitLink")
    first = next(iter(devices.values()))
    number = architecture(first)
    if links:
        error = f"\"ptxas fatal: Value 'sm_{number}' is not defined for option 'gpu-name'\""
    elif known and number > min(known):
        error = f'"Can\'t use arch-specific compute_{number}a ..."'
    else:
        error = f"'GPU compute capability {dotted(first)} is not supported'"
    wanted = sorted({architecture(device) for device in devices.values()})
    return Finding(
        NUMBA,
        f"numba-cuda cannot compile for {named(devices)}: its {title} {dotted(compilers.release)} "
        f"does not support {_sm(wanted)}.",
        severity="warning" if loud else "info",
        evidence=(compiler_line(compilers, known), f"numba-cuda {release}"),
        consequence=f"every kernel fails with {error}.",
        remedy=remedy,
        command=command,
    )


def _newer(package: str, used: Compiler, better: Better, title: str) -> tuple[str, str]:
    """Return remedy and command: what is to be installed in the place of a compiler."""
    if better.release is None:
        return f"install releases of {package} and CUDA that support this GPU", ""
    if better.wheels:
        release = dotted(better.release)
        remedy = f"install {title} of CUDA {release} (torch may pin another release)"
        return remedy, f"pip install {' '.join(f'{one!r}' for one in _pinned(better))}"
    major, other = (used.release or (0, 0))[0], better.release[0]
    remedy = f"install {package} for CUDA {other}: CUDA {major} does not support this GPU"
    if package == "cupy":
        gone = f"pip uninstall -y cupy-cuda{major}x"
        return remedy, f"{gone} && pip install 'cupy-cuda{other}x[ctk]'"
    return remedy, f"pip install '{package}[cu{other}]'"


def _pinned(better: Better) -> list[str]:
    return [f"{wheel}=={dotted(better.release)}.*" for wheel in better.wheels]


def _sm(architectures: Sequence[int]) -> str:
    return " and ".join(f"sm_{one}" for one in architectures)
