"""CG918: whether the GPU code of installed packages runs on the GPUs that are here."""

from __future__ import annotations

import sys
from typing import NamedTuple

from cudaguard.core.checks import Check
from cudaguard.elf.fat_binaries import gpu_code
from cudaguard.features.gpu_architectures import findings as wording
from cudaguard.features.gpu_architectures.policy import (
    CANNOT_RUN,
    FINE,
    KNOWN,
    NO_JIT,
    asked_for,
    cure_for,
    nearest,
    torch_of,
    verdict,
    verdict_of_code,
)
from cudaguard.system.child import try_imports
from cudaguard.system.modules import peek
from cudaguard.system.packages import Skipped
from cudaguard.system.torch_build import are_wheels_known, copy_for, folder_of, installed_copies

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.elf.fat_binaries import GpuCode
    from cudaguard.features.gpu_architectures.policy import Pair, Torch
    from cudaguard.model import Finding
    from cudaguard.system.packages import Result, Site
    from cudaguard.system.torch_build import Nvrtc

# --- torch on GPUs that it, or its NVRTC, does not know: looked at --------------------------------


class Situation(NamedTuple):
    """A torch on the devices of this process.

    Args:
        devices: Their compute capabilities, by ordinal.
        torch: What it was built for.
        nvrtc: The NVRTC that serves it, or will; None if that is not known.
    """

    devices: tuple[Pair, ...]
    torch: Torch
    nvrtc: Nvrtc | None

    def with_verdict(self, wanted: str) -> dict[int, Pair]:
        """Return the devices of which a verdict is true, by ordinal."""
        release = None if self.nvrtc is None else self.nvrtc.release
        return {
            ordinal: device
            for ordinal, device in enumerate(self.devices)
            if verdict(device, self.torch, release) == wanted
        }


def look_at_torch(devices: tuple[Pair, ...]) -> Situation | None:
    """Return how the imported torch gets on with the devices; None if it is none for CUDA.

    Args:
        devices: The compute capabilities of the devices that it may use.
    """
    torch = sys.modules.get("torch")
    flags = peek(peek(torch, "_C"), "_cuda_getArchFlags")
    if flags is None or peek(peek(torch, "version"), "cuda") is None:
        return None
    release = str(peek(torch, "__version__"))
    built = torch_of(release, str(flags() or "").split())
    return Situation(devices, built, copy_for(folder_of("torch")))


def findings_of(situation: Situation, default: int) -> list[Finding]:
    """Return what is to be said of a torch on its devices; nothing where all is fine.

    Args:
        situation: The torch and the devices.
        default: The device that the program uses unless it says otherwise: what is wrong with
            others only is not warned of.
    """
    found = []
    hopeless, lame = situation.with_verdict(CANNOT_RUN), situation.with_verdict(NO_JIT)
    if hopeless:
        cure = cure_for(list(hopeless.values()), 0, with_torch=are_wheels_known())
        loud = default in hopeless
        found.append(wording.cannot_run(situation.torch, hopeless, cure, loud=loud))
    nvrtc = situation.nvrtc
    if lame and nvrtc is not None and nvrtc.release is not None:
        devices = list(lame.values())
        better = nearest(
            copy
            for copy in installed_copies(nvrtc.name)
            if all(verdict(device, situation.torch, copy.release) == FINE for device in devices)
        )
        found.append(
            wording.no_jit(
                lame,
                nvrtc,
                sorted({asked_for(device, situation.torch, nvrtc.release) for device in devices}),
                sorted(KNOWN[nvrtc.release]),
                better,
                cure_for(devices, nvrtc.release[0], with_torch=are_wheels_known()),
                loud=default in lame,
            )
        )
    return found


_ASK_NVML = """
import json
from cudaguard.system.machine import look_at_machine
_note("answer " + json.dumps(look_at_machine()))
"""


def check(site: Site) -> Result:
    """Compare the GPU code of each distribution with the GPUs; a file that is broken has none."""
    gpus = _gpus(site)
    findings: list[Finding] = []
    found = _code(site)
    for dist, files in found.items():
        # One of several files may be the one that serves: they are variants at times.
        without = {
            device: names
            for device, names in gpus.items()
            if all(verdict_of_code(device, code).ok is False for code in files.values())
        }
        if without:
            is_usable = len(without) < len(gpus)
            version = site.version(dist) or ""
            findings.append(wording.no_code(dist, version, without, files, is_usable=is_usable))
    names = ", ".join(f"{a}.{b}" for a, b in gpus)
    return findings, f"packages with GPU code: {len(found)}, compute capabilities here: {names}"


def _gpus(site: Site) -> dict[Pair, list[str]]:
    """Return compute capability -> the names of the devices that have it."""
    ending = try_imports((), site.environ, site.limit, code=_ASK_NVML)
    machine = ending.answer
    if machine is None:
        said = " | ".join((ending.text or ending.kind, *ending.said))
        raise RuntimeError(f"the child that asks NVML gives no answer: {said}")
    if machine["nvml"] == "missing":
        why = "NVML is missing" if machine["driver_library"] else "there is no NVIDIA driver"
        raise Skipped(why)
    names: dict[Pair, list[str]] = {}
    for gpu in machine["gpus"]:
        if gpu["capability"]:
            major, minor = gpu["capability"]
            names.setdefault((major, minor), []).append(gpu["name"])
    if not names:
        raise Skipped("NVML lists no GPU")
    return names


def _code(site: Site) -> dict[str, dict[str, GpuCode]]:
    """Return distribution -> file -> GPU code, of those that have some."""
    found: dict[str, dict[str, GpuCode]] = {}
    for file in site.shared_files:
        if file.dist == "torch" or file.dist.startswith("nvidia-"):
            continue
        try:
            code = gpu_code(file.path)
        except (OSError, OverflowError, ValueError):
            continue
        if code.parts:
            found.setdefault(file.dist, {})[file.path] = code
    if not found:
        raise Skipped("nothing that is installed has GPU code, torch and NVIDIA's libraries aside")
    return found


GPU_CODE = Check(
    "CG918",
    "GPU code of installed packages",
    "The headers of the fat binaries in installed extensions and libraries tell for which GPUs "
    "they have code; NVML is asked in a child which GPUs are here. Not looked at: torch, of which "
    "CG913 tells, and NVIDIA's own libraries.",
    check,
    "--deep",
)
