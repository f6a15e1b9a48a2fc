"""The wording of what is said of GPUs that torch or its NVRTC does not know."""

from __future__ import annotations

from cudaguard.core.messages import guarded_command
from cudaguard.features.gpu_architectures.policy.architectures import dotted
from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cudaguard.features.gpu_architectures.policy.architectures import Cure, Torch
    from cudaguard.system.nvrtc import Nvrtc

    Capability = tuple[int, int]

CANNOT_RUN, NO_JIT = "CG893", "CG894"
_REFUSAL = "nvrtc: error: invalid value for --gpu-architecture (-arch)"


def cannot_run(
    torch: Torch, devices: Mapping[int, Capability], cure: Cure, *, loud: bool
) -> Finding:
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
        CANNOT_RUN,
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
    devices: Mapping[int, Capability],
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
        NO_JIT,
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


def more_exactly(finding: Finding, ours: Finding) -> Finding:
    """Return what is known of a message in the words of what was found in this process."""
    return finding.replace(
        what=ours.what,
        evidence=(*finding.evidence, *ours.evidence),
        consequence=ours.consequence,
        remedy=ours.remedy,
        command=ours.command,
    )


def with_copies(
    finding: Finding,
    devices: Sequence[Capability],
    copies: Iterable[tuple[Nvrtc, Sequence[int]]],
) -> Finding:
    """Return what is known of a message, with the devices and the NVRTC of this process.

    Args:
        finding: What the message means.
        devices: Compute capabilities, by ordinal.
        copies: The copies of NVRTC, and what each can compile for.
    """
    there = [f"device {n} has compute capability {dotted(d)}" for n, d in enumerate(devices)]
    said = [compiler_line(copy, known) for copy, known in copies]
    return finding.replace(evidence=(*finding.evidence, *there, *said))


def as_it_knows(better: Nvrtc, own: Nvrtc, devices: Sequence[Capability]) -> str:
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


def named(devices: Mapping[int, Capability]) -> str:
    """Return the devices in words, those of one kind together."""
    kinds: dict[Capability, list[int]] = {}
    for ordinal, device in devices.items():
        kinds.setdefault(device, []).append(ordinal)
    return " and ".join(
        f"device{'s' if len(found) > 1 else ''} {', '.join(map(str, found))} (compute capability "
        f"{dotted(kind)})"
        for kind, found in kinds.items()
    )
