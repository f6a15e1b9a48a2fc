"""CG904, CG918: whether driver, CUDA and NVRTC fit torch, and GPU code the GPUs that are here."""

from __future__ import annotations

import os

from cudaguard.core.checks import Check
from cudaguard.features.gpu_architectures import installed_code
from cudaguard.features.gpu_architectures.messages import checks as wording
from cudaguard.features.gpu_architectures.policy.driver import (
    first_driver,
    halves_differ,
    is_too_old,
    numbers,
)
from cudaguard.system.machine import kinds_of_machine
from cudaguard.system.nvidia_driver import look_at_driver
from cudaguard.system.nvrtc import copy_for
from cudaguard.system.site import Skipped
from cudaguard.system.torch_build import folder_of, look_around
from cudaguard.system.trial import try_imports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.model import Finding
    from cudaguard.system.nvidia_driver import DriverFiles
    from cudaguard.system.site import Result, Site


# Needs no cuInit, and starts nothing.
_ASK_DRIVER = """
from cudaguard.system.driver import Driver
driver = Driver()
driver.load()
_note(f"answer {driver.version()}")
"""


def check(site: Site) -> Result:
    """Compare what files tell of each; which CUDA the driver supports is asked of it in a child."""
    torch, driver = look_around(), look_at_driver()
    there = bool(driver.kernel or driver.library)
    if not there and not driver.devices and not torch.cuda:
        raise Skipped("there is no NVIDIA driver, and torch is none for CUDA")
    findings = of_driver(driver, is_container="container" in kinds_of_machine())
    if torch.torch and not torch.cuda:
        if driver.kernel:
            findings.append(wording.torch_without_cuda(torch.torch, driver.kernel))
    elif torch.cuda:
        if not there:
            findings.append(wording.no_driver(torch.torch, torch.cuda))
        elif driver.library and not _is_stand_in(driver):
            supported = _supported(site)
            if is_too_old(torch.cuda, supported):
                first = first_driver(torch.cuda)
                found = wording.old_driver(driver, supported, torch.torch, torch.cuda, first)
                findings.append(found)
        findings += _of_nvrtc(torch.cuda)
    seen = [f"driver {driver.kernel or 'none'}"]
    seen += [f"torch for CUDA {torch.cuda}"] if torch.cuda else []
    return findings, ", ".join(seen)


def of_driver(driver: DriverFiles, *, is_container: bool) -> list[Finding]:
    """Return what is wrong with the two halves of a driver."""
    findings = []
    how = halves_differ(driver.library_version, driver.kernel)
    if _is_stand_in(driver):
        findings.append(wording.stand_in(driver.library))
    elif how == "newer" and ("compat" in driver.library or is_container):
        findings.append(wording.compatible(driver))
    elif how:
        findings.append(wording.halves_differ(driver, how, is_container=is_container))
    if driver.kernel and not driver.library:
        findings.append(wording.no_library(driver.kernel))
    if driver.devices and not driver.kernel:
        findings.append(wording.module_not_loaded(driver.devices))
    if driver.closed:
        findings.append(wording.devices_closed(driver.closed))
    return findings


def _supported(site: Site) -> int:
    """Return the newest CUDA that the driver supports, 12040 for 12.4; 0 if it does not say."""
    return int(try_imports((), site.environ, site.limit, code=_ASK_DRIVER).answer or 0)


def _is_stand_in(driver: DriverFiles) -> bool:
    return os.path.basename(os.path.dirname(driver.library)) == "stubs"


def _of_nvrtc(cuda: str) -> list[Finding]:
    serving = copy_for(folder_of("torch"))
    if serving is None or serving.release is None or serving.release >= numbers(cuda)[:2]:
        return []
    return [wording.old_nvrtc(serving.path, ".".join(map(str, serving.release)), cuda)]


DRIVER_AND_CUDA = Check(
    "CG904",
    "driver, CUDA and NVRTC",
    "What the driver's kernel module says (/proc/driver/nvidia), its library, the device files, "
    "the CUDA that torch is built for, and the NVRTC that torch would load. The driver says in a "
    "child which CUDA it supports, if torch needs one; CUDA is not initialized.",
    check,
)

GPU_CODE = Check(
    "CG918",
    "GPU code of installed packages",
    "The headers of the fat binaries in installed extensions and libraries tell for which GPUs "
    "they have code; NVML is asked in a child which GPUs are here. Not looked at: torch, of which "
    "CG913 tells, and NVIDIA's own libraries.",
    installed_code.check,
    "--deep",
)
