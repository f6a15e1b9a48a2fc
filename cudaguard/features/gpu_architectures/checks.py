"""CG918: whether the GPU code of installed packages runs on the GPUs that are here."""

from __future__ import annotations

from typing import NamedTuple

from cudaguard.core.checks import Check
from cudaguard.elf.fat_binaries import gpu_code
from cudaguard.features.gpu_architectures.messages import gpu_code as wording
from cudaguard.features.gpu_architectures.policy.gpu_code import cuda_of, verdict
from cudaguard.system.site import Skipped
from cudaguard.system.trial import try_imports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudaguard.elf.fat_binaries import GpuCode
    from cudaguard.features.gpu_architectures.policy.gpu_code import Verdict
    from cudaguard.model import Finding
    from cudaguard.system.site import Result, Site

    Pair = tuple[int, int]

_ASK_NVML = """
import json
from cudaguard.system.machine import look_at_machine
_note("answer " + json.dumps(look_at_machine().to_dict()))
"""


class _Gpus(NamedTuple):
    """The GPUs that are here.

    Args:
        names: Compute capability -> the names of the devices that have it.
        cuda: The newest CUDA of the driver; (0, 0) if it does not say.
    """

    names: dict[Pair, list[str]]
    cuda: Pair


def check(site: Site) -> Result:
    """Compare the GPU code of each distribution with the GPUs; a file that is broken has none."""
    gpus = _gpus(site)
    findings: list[Finding] = []
    found = _code(site)
    for dist, files in found.items():
        findings += _findings(dist, site.version(dist) or "", files, gpus)
    names = ", ".join(f"{a}.{b}" for a, b in gpus.names)
    return findings, f"packages with GPU code: {len(found)}, compute capabilities here: {names}"


def _gpus(site: Site) -> _Gpus:
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
    supported = machine["supported"]
    return _Gpus(names, (supported // 1000, supported % 1000 // 10))


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


def _findings(dist: str, version: str, files: Mapping[str, GpuCode], gpus: _Gpus) -> list[Finding]:
    without: dict[Pair, list[str]] = {}
    partly: dict[Pair, list[str]] = {}
    late: dict[Pair, list[str]] = {}
    lacking: dict[str, GpuCode] = {}
    needed = (0, 0)  # CUDA, for PTX
    for device, names in gpus.names.items():
        verdicts = {path: verdict(device, code) for path, code in files.items()}
        answers = [one.ok for one in verdicts.values()]
        if all(ok is False for ok in answers):
            without[device] = names
            continue
        if False in answers:
            partly[device] = names
            lacking.update({path: files[path] for path, one in verdicts.items() if one.ok is False})
        serving = [one for one in verdicts.values() if one.ok]
        if serving and all(one.is_compiled_at_first_use for one in serving):
            late[device] = names
            needed = max(needed, _cuda_needed(verdicts, files))
    newer = needed if (0, 0) != gpus.cuda < needed else None
    is_usable = len(without) < len(gpus.names)
    found = [wording.no_code(dist, version, without, files, is_usable=is_usable)] if without else []
    found += [wording.partly(dist, version, partly, lacking)] if partly else []
    found += [wording.compiled_at_first_use(dist, version, late, newer)] if late else []
    return found


def _cuda_needed(verdicts: Mapping[str, Verdict], files: Mapping[str, GpuCode]) -> Pair:
    """Return the release of CUDA that the driver needs for the file that asks for the least."""
    asked = [
        cuda_of(files[path].ptx[one.by])
        for path, one in verdicts.items()
        if one.by in files[path].ptx
    ]
    return min(asked, default=(0, 0))


GPU_CODE = Check(
    "CG918",
    "GPU code of installed packages",
    "The headers of the fat binaries in installed extensions and libraries tell for which GPUs "
    "they have code; NVML is asked in a child which GPUs are here. Not looked at: torch, of which "
    "CG913 tells, and NVIDIA's own libraries.",
    check,
    "--deep",
)
