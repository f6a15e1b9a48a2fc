"""The wording of libraries that have no code for a GPU."""

from __future__ import annotations

from cudaguard.core.messages import and_more, listed
from cudaguard.features.gpu_architectures.policy.architectures import architecture, dotted
from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cudaguard.elf.fat_binaries import GpuCode
    from cudaguard.features.gpu_architectures.policy.gpu_code import Verdict

    Pair = tuple[int, int]

GPU_CODE = "CG918"
_SHOWN = 3
_FAILS = "no kernel image is available for execution on the device"


def remedy(dist: str, devices: Sequence[Pair]) -> str:
    """Return what to do about a library without code for devices."""
    told = ";".join(map(dotted, devices))
    build = f"build it with TORCH_CUDA_ARCH_LIST='{told}' (CMake: CMAKE_CUDA_ARCHITECTURES="
    numbers = ";".join(str(architecture(device)) for device in devices)
    return f"install a build of {dist} for this GPU, or {build}'{numbers}')"


def in_words(device: Pair, code: GpuCode, found: Verdict, cuda: Pair | None = None) -> str:
    """Return what a library does on a device, in a sentence without its end.

    Args:
        device: Its compute capability.
        code: What the library has.
        found: What follows from that.
        cuda: The release of CUDA that compiles its PTX; None if none is compiled.
    """
    name = f"sm_{architecture(device)}"
    has = " ".join(code.architectures)
    if found.ok is None:
        return f"{name}: unknown, because some of its GPU code is of an unknown kind"
    if not found.ok:
        return f"{name}: no code for it, only {has}: every kernel fails with '{_FAILS}'"
    told = f"{name}: runs its machine code for {found.by}"
    if cuda is not None:
        told = (
            f"{name}: runs its PTX for {found.by}, JIT-compiled at first use by a driver for CUDA "
            f"{dotted(cuda)} or later"
        )
    if found.lacking:
        told += f"; {found.lacking} of its {len(code.parts)} parts have code for other GPUs only"
    return told


def no_code(
    dist: str,
    version: str,
    gpus: Mapping[Pair, Sequence[str]],
    files: Mapping[str, GpuCode],
    *,
    is_usable: bool,
) -> Finding:
    """A distribution of which no file has code for GPUs that are here.

    Args:
        dist: The distribution.
        version: Its version.
        gpus: The compute capabilities that are not served -> the names of the devices.
        files: Its files with GPU code.
        is_usable: True if it has code for another GPU that is here, as beside one for a display.
    """
    return Finding(
        GPU_CODE,
        f"{dist} {version} has no code for {_named(gpus)}.",
        severity="warning" if is_usable else "error",
        evidence=_evidence(files),
        consequence=f"its compiled kernels fail there with '{_FAILS}'.",
        remedy=remedy(dist, list(gpus)),
        command=_command(dist, gpus),
        links=("https://docs.nvidia.com/cuda/cuda-c-programming-guide/#binary-compatibility",),
    )


def _named(gpus: Mapping[Pair, Sequence[str]]) -> str:
    return listed(
        [f"{listed(sorted(set(names)))} (sm_{architecture(one)})" for one, names in gpus.items()]
    )


def _evidence(files: Mapping[str, GpuCode]) -> tuple[str, ...]:
    shown = list(files.items())[:_SHOWN]
    return (
        *(f"{path}: {' '.join(code.architectures)}" for path, code in shown),
        *and_more(len(files) - _SHOWN, "files"),
    )


def _command(dist: str, gpus: Mapping[Pair, Sequence[str]]) -> str:
    told = " ".join(f"--gpu sm_{architecture(device)}" for device in gpus)
    return f"cudaguard check-extension {told} --verbose {dist}"
