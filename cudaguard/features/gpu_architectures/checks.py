"""What torch and installed packages have code for, compared with the GPUs that are here."""

from __future__ import annotations

import sys

from cudaguard.config import local_rank
from cudaguard.core.checks import Check
from cudaguard.elf.fat_binaries import gpu_code
from cudaguard.features.gpu_architectures import findings as wording
from cudaguard.features.gpu_architectures.policy import Torch, can_compile, code_for, has_code
from cudaguard.files import os
from cudaguard.system.child import try_imports
from cudaguard.system.driver import Driver
from cudaguard.system.modules import peek
from cudaguard.system.packages import Skipped
from cudaguard.system.torch_build import copy_for, folder_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from cudaguard.elf.fat_binaries import GpuCode
    from cudaguard.features.gpu_architectures.policy import Pair
    from cudaguard.model import Finding
    from cudaguard.system.child import Ending
    from cudaguard.system.packages import Result, Site
    from cudaguard.system.torch_build import Nvrtc


def look_at_torch() -> Iterator[Finding]:
    """Yield what is to be said of the imported torch on the devices that it may use.

    Nothing before CUDA is initialized, and of a torch without CUDA.
    """
    torch = sys.modules.get("torch")
    flags = peek(peek(torch, "_C"), "_cuda_getArchFlags")
    # A driver of our own: this may be a forked process, in which torch has just initialized CUDA.
    devices = Driver().capabilities() if flags is not None else ()
    if devices and peek(peek(torch, "version"), "cuda") is not None:
        built = Torch(str(peek(torch, "__version__")), tuple(str(flags() or "").split()))
        yield from findings_of(built, copy_for(folder_of("torch")), devices)


def findings_of(torch: Torch, nvrtc: Nvrtc | None, devices: tuple[Pair, ...]) -> Iterator[Finding]:
    """Yield what is to be said of a torch on devices; nothing where all is fine.

    What is wrong only with devices that the program does not use by default is not warned of.
    """
    default = local_rank(os.environ) or 0
    usable = {n: device for n, device in enumerate(devices) if has_code(torch, device)}
    without_code = {n: device for n, device in enumerate(devices) if n not in usable}
    if without_code:
        yield wording.cannot_run(torch, without_code, loud=default in without_code)
    if nvrtc is not None:
        release = nvrtc.release
        without_compiler = {n: d for n, d in usable.items() if not can_compile(torch, release, d)}
        if without_compiler:
            yield wording.no_jit(torch, without_compiler, nvrtc, loud=default in without_compiler)


# --- CG918: the GPU code of installed packages ----------------------------------------------------

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
            if all(code_for(device, code) == "" for code in files.values())
        }
        if without:
            is_usable = len(without) < len(gpus)
            version = site.version(dist) or ""
            findings.append(wording.no_code(dist, version, without, files, is_usable=is_usable))
    names = ", ".join(f"{a}.{b}" for a, b in gpus)
    return findings, f"packages with GPU code: {len(found)}, compute capabilities here: {names}"


def ending_words(ending: Ending, limit: float) -> str:
    """Return how a child ended that failed, in a few words."""
    how = {
        "signal": f"crashes ({ending.text})",
        "hang": f"hangs (still running after {limit:g} s)",
        "error": f"fails with {ending.text}",
        "exit": f"exits with status {ending.text}",
    }[ending.kind]
    return f"{how} {f'in the import of {ending.at}' if ending.at else 'when the process ends'}"


def machine_by_child(site: Site) -> dict[str, Any]:
    """Return what `look_at_machine` does in a child, which NVML may crash or keep waiting.

    Raises a RuntimeError if it does not answer: then nothing is known.
    """
    ending = try_imports((), site.environ, site.limit, code=_ASK_NVML)
    machine: dict[str, Any] | None = ending.answer
    if machine is None:
        how = ending_words(ending, site.limit) if ending.kind else "has not answered"
        raise RuntimeError(f"the child {how}: {' | '.join(ending.said)}".rstrip(": "))
    return machine


def _gpus(site: Site) -> dict[Pair, list[str]]:
    """Return compute capability -> the names of the devices that have it."""
    machine = machine_by_child(site)
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
        if code.architectures:
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
