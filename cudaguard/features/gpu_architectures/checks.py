"""GPU code of installed packages compared with the GPUs here; known errors about it."""

from __future__ import annotations

from cudaguard.core.checks import Check, Skipped
from cudaguard.core.known_errors import Explainer, known_in
from cudaguard.elf.process import mapped_files
from cudaguard.features.gpu_architectures import findings as wording
from cudaguard.features.gpu_architectures.detector import code_of, look_at_torch
from cudaguard.features.gpu_architectures.policy import dotted, lack_code
from cudaguard.features.gpu_architectures.repair import mapped_copies
from cudaguard.files import os, own_errors
from cudaguard.model import TYPE_CHECKING
from cudaguard.system.child import try_imports
from cudaguard.system.driver import Driver

if TYPE_CHECKING:
    from typing import Any

    from cudaguard.core.checks import Result
    from cudaguard.core.findings import Finding
    from cudaguard.elf.library_facts import GpuCode
    from cudaguard.features.gpu_architectures.policy import Pair
    from cudaguard.system.child import Ending
    from cudaguard.system.packages import Site


_ASK_NVML = """
import json
from cudaguard.system.machine import look_at_machine
_note("answer " + json.dumps(look_at_machine()))
"""


def check_gpu_code(site: Site) -> Result:
    """Compare the GPU code of each distribution with the GPUs; a file that is broken has none."""
    gpus = _gpus(site)
    findings: list[Finding] = []
    found = _code(site)
    for dist, files in found.items():
        # One of several files may be the one that serves: they are variants at times.
        if without := {g: names for g, names in gpus.items() if lack_code(files.values(), g)}:
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
    return f"{how} {f'while importing {ending.at}' if ending.at else 'when the process ends'}"


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
        code = code_of(file.path)
        if code.architectures:
            found.setdefault(file.dist, {})[file.path] = code
    if not found:
        raise Skipped("nothing that is installed has GPU code, torch and NVIDIA's libraries aside")
    return found


GPU_CODE = Check(
    wording.NO_GPU_CODE,
    "The headers of the fat binaries in installed extensions and libraries tell for which GPUs "
    "they have code; NVML is asked in a child which GPUs are here. Not looked at: torch, of which "
    "CG913 tells, and NVIDIA's own libraries.",
    check_gpu_code,
    "--deep",
)


# --- What messages mean, with what is true of this process ----------------------------------------


def with_facts(finding: Finding) -> Finding:
    """Return what a message of NVRTC or of CUDA means, with what is true of this process."""
    if finding.id in _OF_DRIVER:
        return _with_driver(finding)
    try:
        devices = Driver().capabilities()
        here = next(look_at_torch(), None)
    except own_errors(AttributeError, ImportError):  # no ctypes, or odd C library
        return finding
    if here is not None:
        evidence = (*finding.evidence, *here.evidence)
        return here.replace(severity=finding.severity, evidence=evidence)
    if not devices:
        return finding
    facts = [f"device {n} has compute capability {dotted(d)}" for n, d in enumerate(devices)]
    facts += map(wording.compiler_line, mapped_copies())
    return finding.replace(evidence=(*finding.evidence, *facts))


def _with_driver(finding: Finding) -> Finding:
    """Return what is said of the driver, with the library and the version that this process has."""
    files = [file for file in mapped_files() if os.path.basename(file).startswith("libcuda.so")]
    if stub := next((file for file in files if "/stubs/" in file), ""):
        what = "The CUDA toolkit's stub library was loaded in place of the driver."
        cure = f"take {os.path.dirname(stub)} out of LD_LIBRARY_PATH: it is for linking alone"
        finding = finding.replace(what=what, remedy=cure, command="ldconfig -p | grep libcuda.so")
    version = "" if stub or not files else Driver().cuda_version()
    known = f"the driver here is for CUDA {version} and older" if version else stub
    return finding.replace(evidence=(*finding.evidence, *filter(None, [known])))


_OF_DRIVER = "CG715", "CG769"
_IDS = wording.LACKS_CODE.id, wording.LACKS_COMPILER.id, *_OF_DRIVER
EXPLAINER = Explainer(known_in(__file__, vars(wording)), with_facts, _IDS)
