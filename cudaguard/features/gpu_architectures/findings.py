"""The wording of what is said of GPUs that torch, its NVRTC or a library does not know."""

from __future__ import annotations

from cudaguard.core.findings import and_more, guarded_command, listed
from cudaguard.features.gpu_architectures.policy import architecture, dotted
from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cudaguard.elf.fat_binaries import GpuCode
    from cudaguard.features.gpu_architectures.policy import Cure, Pair, Torch, Verdict
    from cudaguard.system.torch_build import Nvrtc

_REFUSAL = "nvrtc: error: invalid value for --gpu-architecture (-arch)"
_SHOWN = 3
_FAILS = "no kernel image is available for execution on the device"


def cannot_run(torch: Torch, devices: Mapping[int, Pair], cure: Cure, *, loud: bool) -> Finding:
    """This torch has no code for devices.

    Args:
        torch: What it was built for.
        devices: Those that it cannot use, by ordinal.
        cure: What is to be installed.
        loud: True if it is worth a warning.
    """
    remedy = "install a torch that was built for this GPU, or build it with TORCH_CUDA_ARCH_LIST"
    command = f"pip install '{cure.torch}'" if cure.torch else ""
    if cure.torch == "torch":  # of any version: this one was built elsewhere
        remedy = "install torch from PyPI, or build this torch with TORCH_CUDA_ARCH_LIST"
        command = "pip install --force-reinstall torch"
    elif cure.torch:
        is_newer = ">=" in cure.torch
        remedy = f"install {cure.torch} from PyPI, which has code for it" + (
            f" (built with CUDA {dotted(cure.cuda)} or later)" if is_newer else ""
        )
    return Finding(
        "CG893",
        f"torch {torch.release} has no code for {named(devices)}.",
        severity="warning" if loud else "info",
        evidence=(f"it was built for {' '.join(torch.flags)}",),
        consequence=(
            "every kernel of torch fails there with 'no kernel image is available for execution on "
            "the device'. Another NVRTC, driver or CUDA toolkit does not help."
        ),
        remedy=remedy,
        command=command,
        links=("https://github.com/pytorch/pytorch/issues/150733",),
    )


def no_jit(
    devices: Mapping[int, Pair],
    nvrtc: Nvrtc,
    wanted: Sequence[int],
    known: Sequence[int],
    newer: Nvrtc | None,
    cure: Cure,
    *,
    loud: bool,
) -> Finding:
    """Only what torch compiles at run time fails on devices.

    Args:
        devices: Those that torch's NVRTC does not know, by ordinal.
        nvrtc: That NVRTC.
        wanted: What it is asked to compile for.
        known: What it can compile for.
        newer: An installed copy that would serve them.
        cure: What is to be installed.
        loud: True if it is worth a warning.
    """
    remedy, command = _beside(cure, newer)
    return Finding(
        "CG894",
        f"torch's NVRTC {dotted(nvrtc.release)} does not support "
        f"{' and '.join(f'sm_{one}' for one in wanted)} of {named(devices)}.",
        severity="warning" if loud else "info",
        evidence=(compiler_line(nvrtc, known),),
        consequence=(
            "ordinary kernels run. The fusers of TorchScript and operators such as torch.prod "
            f"compile at run time, and fail with '{_REFUSAL}'."
        ),
        remedy=remedy,
        command=command,
        links=("https://github.com/pytorch/pytorch/issues/87595",),
    )


def _beside(cure: Cure, newer: Nvrtc | None) -> tuple[str, str]:
    """Return remedy and command for an NVRTC that is too old, or too new."""
    if newer is not None:
        remedy = (
            f"load {newer.path} with ctypes.CDLL before `import torch`. In mode 'fix' cudaguard "
            "does so (rule CG033), if it is installed first and no other GPU here works without it"
        )
        return remedy, guarded_command()
    if cure.release is None:
        remedy = "install a torch that was built with another major version of CUDA"
        if not cure.torch:
            return remedy, ""
        return f"{remedy}: {cure.torch} from PyPI", f"pip install '{cure.torch}'"
    release = dotted(cure.release)
    remedy = (
        f"install NVRTC {release} in a folder on PYTHONPATH, and call cudaguard.install() before "
        "`import torch`, which loads it first (rule CG033)"
    )
    folder = f"$HOME/nvrtc-{release}"
    install = f'pip install --no-deps --target "{folder}" "{cure.wheel}=={release}.*"'
    return remedy, f'{install} && export PYTHONPATH="{folder}${{PYTHONPATH:+:$PYTHONPATH}}"'


def as_it_knows(better: Nvrtc, own: Nvrtc, devices: Sequence[Pair]) -> str:
    """Return why torch is served by another NVRTC, as a clause."""
    names = ", ".join(dict.fromkeys(map(dotted, devices)))
    return (
        f"because NVRTC {dotted(better.release)} supports the GPUs here (compute capability "
        f"{names}), and torch's own {dotted(own.release)} does not,"
    )


def compiler_line(compiler: Nvrtc, known: Sequence[int]) -> str:
    """Return which compiler it is, and what it can compile for if that is given."""
    knows = f", supports {' '.join(map(str, known))}" if known else ""
    return f"{compiler.path} of CUDA {dotted(compiler.release)}{knows}"


def named(devices: Mapping[int, Pair]) -> str:
    """Return the devices in words, those of one kind together."""
    kinds: dict[Pair, list[int]] = {}
    for ordinal, device in devices.items():
        kinds.setdefault(device, []).append(ordinal)
    return " and ".join(
        f"device{'s' if len(found) > 1 else ''} {', '.join(map(str, found))} (compute capability "
        f"{dotted(kind)})"
        for kind, found in kinds.items()
    )


def build_remedy(dist: str, devices: Sequence[Pair]) -> str:
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
    names = [f"{listed(sorted(set(some)))} (sm_{architecture(gpu)})" for gpu, some in gpus.items()]
    told = " ".join(f"--gpu sm_{architecture(device)}" for device in gpus)
    shown = list(files.items())[:_SHOWN]
    return Finding(
        "CG918",
        f"{dist} {version} has no code for {listed(names)}.",
        severity="warning" if is_usable else "error",
        evidence=(
            *(f"{path}: {' '.join(code.architectures)}" for path, code in shown),
            *and_more(len(files) - _SHOWN, "files"),
        ),
        consequence=f"its compiled kernels fail there with '{_FAILS}'.",
        remedy=build_remedy(dist, list(gpus)),
        command=f"cudaguard check-extension {told} --verbose {dist}",
        links=("https://docs.nvidia.com/cuda/cuda-c-programming-guide/#binary-compatibility",),
    )
