"""Findings about GPUs that torch, its NVRTC or a library has no code for."""

from __future__ import annotations

import shlex
import sys

from cudaguard.core.findings import Finding, Kind, first_few, listed
from cudaguard.core.table import github
from cudaguard.features.gpu_architectures import policy
from cudaguard.files import os
from cudaguard.model import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cudaguard.elf.library_facts import GpuCode
    from cudaguard.features.gpu_architectures.policy import Nvrtc, Pair, Torch

_FAILS = "no kernel image is available for execution on the device"

NO_GPU_CODE = Kind("CG918", "GPU code of installed packages")
LACKS_CODE = Kind(
    "CG893",
    "a library has no code for a GPU",
    "CudaGuardWarning",
    consequence=f"Its kernels fail there with '{_FAILS}'. Another NVRTC, driver or CUDA toolkit "
    "does not help.",
    remedy="install a torch that was built for this GPU, or build it with TORCH_CUDA_ARCH_LIST",
    page="howto/architectures.md",
    links=github("pytorch/pytorch/issues/150733"),
)
LACKS_COMPILER = Kind(
    "CG894",
    "NVRTC does not support a GPU",
    "CudaGuardWarning",
    consequence="Ordinary kernels run. The fusers of TorchScript and operators such as torch.prod "
    "compile at run time, and fail with 'nvrtc: error: invalid value for --gpu-architecture "
    "(-arch)'.",
    remedy="install an NVRTC of the same major version that supports the GPU, or a torch that was "
    "built for it",
    page="howto/architectures.md",
    links=github("pytorch/pytorch/issues/87595"),
)


def cannot_run(torch: Torch, devices: Mapping[int, Pair], *, loud: bool) -> Finding:
    """This torch has no code for devices, given by ordinal; `loud` if it is worth a warning."""
    wheel = _torch_wheel(devices)
    remedy, command = LACKS_CODE.remedy, f"pip install '{wheel}'" if wheel else ""
    if wheel == "torch":  # of any version: this one was built elsewhere
        remedy = "install torch from PyPI, or build this torch with TORCH_CUDA_ARCH_LIST"
        command = "pip install --force-reinstall torch"
    elif wheel:
        remedy = f"install {wheel} from PyPI, which has code for it"
    return LACKS_CODE.found(
        f"torch {torch.release} has no code for {device_names(devices)}.",
        f"it was built for {' '.join(torch.flags)}",
        severity="warning" if loud else "info",
        remedy=remedy,
        command=command,
    )


def library_cannot_run(
    name: str, devices: Mapping[int, Pair], files: Mapping[str, GpuCode], *, loud: bool
) -> Finding:
    """A library that this process uses has no code for devices, given by ordinal."""
    return LACKS_CODE.found(
        f"{name} has no code for {device_names(devices)}.",
        *_built_for(files),
        severity="warning" if loud else "info",
        remedy=build_remedy(name, sorted(set(devices.values()))),
    )


def no_jit(torch: Torch, devices: Mapping[int, Pair], nvrtc: Nvrtc, *, loud: bool) -> Finding:
    """Torch's NVRTC does not know devices: only what torch compiles at run time fails there."""
    release = nvrtc.release or (0, 0)
    wanted = sorted({policy.asked_for(device, torch, release) for device in devices.values()})
    wheel = policy.nvrtc_for(devices.values(), release[0])
    command = f"pip install '{wheel}'"
    if release < (11, 8):  # it is a part of torch
        remedy = "install a torch that was built with CUDA 11.8 or later"
        command = "pip install --upgrade torch"
    elif wheel:
        remedy = f"install {wheel}; pip then says that torch requires another one"
    else:
        remedy = "install a torch that was built with another major version of CUDA"
        older = _torch_wheel(devices)
        remedy += f": {older} from PyPI" if older else ""
        command = f"pip install '{older}'" if older else ""
    return LACKS_COMPILER.found(
        f"torch's NVRTC {policy.dotted(nvrtc.release)} does not support "
        f"{' and '.join(f'sm_{number}' for number in wanted)} of {device_names(devices)}.",
        compiler_line(nvrtc),
        severity="warning" if loud else "info",
        remedy=remedy,
        command=command,
    )


def _torch_wheel(devices: Mapping[int, Pair]) -> str:
    """Return which torch of PyPI is for devices; empty where its wheels are others than we know."""
    is_known = sys.platform == "linux" and os.uname().machine == "x86_64"
    return policy.torch_for(next(iter(devices.values()))) if is_known else ""


def as_it_knows(better: Nvrtc, own: Nvrtc, devices: Sequence[Pair]) -> str:
    """Return why torch is served by another NVRTC, as a clause."""
    names = ", ".join(dict.fromkeys(map(policy.dotted, devices)))
    return (
        f"because NVRTC {policy.dotted(better.release)} supports the GPUs here (compute capability "
        f"{names}), and torch's own {policy.dotted(own.release)} does not,"
    )


def compiler_line(compiler: Nvrtc) -> str:
    """Return which compiler it is, and what it can compile for if that is known."""
    known = sorted(policy.TARGETS.get(compiler.release or (0, 0), ()))
    knows = f", supports {' '.join(map(str, known))}" if known else ""
    return f"{compiler.path} of CUDA {policy.dotted(compiler.release)}{knows}"


def device_names(devices: Mapping[int, Pair]) -> str:
    """Return the devices in words, those of one kind together."""
    kinds: dict[Pair, list[int]] = {}
    for ordinal, device in devices.items():
        kinds.setdefault(device, []).append(ordinal)
    return " and ".join(
        f"device{'s' if len(found) > 1 else ''} {', '.join(map(str, found))} (compute capability "
        f"{policy.dotted(kind)})"
        for kind, found in kinds.items()
    )


def build_remedy(dist: str, devices: Sequence[Pair]) -> str:
    """Return what to do about a library without code for devices."""
    pairs = ";".join(map(policy.dotted, devices))
    build = f"build it with TORCH_CUDA_ARCH_LIST='{pairs}' (CMake: CMAKE_CUDA_ARCHITECTURES="
    numbers = ";".join(str(policy.architecture(device)) for device in devices)
    return f"install a build of {dist} for this GPU, or {build}'{numbers}')"


def _built_for(files: Mapping[str, GpuCode]) -> tuple[str, ...]:
    """Return what files have code for, in a line each."""
    built = [f"{path}: {' '.join(code.architectures)}" for path, code in files.items()]
    return first_few(built, "files")


def in_words(device: Pair, code: GpuCode) -> str:
    """Return what a library does on a device, in a sentence without its end."""
    name, by = f"sm_{policy.architecture(device)}", policy.code_for(device, code)
    if by is None:
        return f"{name}: unknown, because some of its GPU code is of an unknown kind"
    if not by:
        has = " ".join(code.architectures)
        return f"{name}: no code for it, only {has}: every kernel fails with '{_FAILS}'"
    if by.startswith("sm"):
        return f"{name}: runs its machine code for {by}"
    return f"{name}: runs its PTX for {by}, JIT-compiled at first use by a driver that knows it"


def no_code(
    dist: str,
    version: str,
    gpus: Mapping[Pair, Sequence[str]],
    files: Mapping[str, GpuCode],
    *,
    is_usable: bool,
) -> Finding:
    """No file of a distribution has code for `gpus`: compute capabilities with device names.

    It is usable if it has code for another GPU that is here, as beside one for a display.
    """
    names = [
        f"{listed(sorted(set(some)))} (sm_{policy.architecture(gpu)})" for gpu, some in gpus.items()
    ]
    options = " ".join(f"--gpu sm_{policy.architecture(device)}" for device in gpus)
    return NO_GPU_CODE.found(
        f"{dist} {version} has no code for {listed(names)}.",
        *_built_for(files),
        severity="warning" if is_usable else "error",
        consequence=f"Its compiled kernels fail there with '{_FAILS}'.",
        remedy=build_remedy(dist, list(gpus)),
        command=f"cudaguard check-extension {options} --verbose {shlex.quote(dist)}",
        links=("https://docs.nvidia.com/cuda/cuda-c-programming-guide/#binary-compatibility",),
    )
