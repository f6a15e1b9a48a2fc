"""CG904: whether driver, CUDA and NVRTC fit torch."""

from __future__ import annotations

import os

from cudaguard.core.checks import Check
from cudaguard.features.gpu_architectures.messages import checks as wording
from cudaguard.features.gpu_architectures.policy.driver import driver_wanted, numbers
from cudaguard.system.nvidia_driver import look_at_driver
from cudaguard.system.nvrtc import copy_for
from cudaguard.system.site import Skipped
from cudaguard.system.torch_build import folder_of, look_around

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.model import Finding
    from cudaguard.system.nvidia_driver import DriverFiles
    from cudaguard.system.site import Result, Site


def check(_: Site) -> Result:
    """Compare what files tell of each."""
    torch, driver = look_around(), look_at_driver()
    there = bool(driver.kernel or driver.library)
    if not there and not driver.devices and not torch.cuda:
        raise Skipped("there is no NVIDIA driver, and torch is none for CUDA")
    findings = _of_driver(driver)
    if torch.torch and not torch.cuda:
        if driver.kernel:
            findings.append(wording.torch_without_cuda(torch.torch, driver.kernel))
    elif torch.cuda:
        if not there:
            findings.append(wording.no_driver(torch.torch, torch.cuda))
        wanted = driver_wanted(torch.cuda, driver.kernel)
        # A library of the forward-compatibility package brings a newer CUDA than the kernel's half.
        if wanted and "compat" not in driver.library:
            findings.append(wording.old_driver(driver.kernel, wanted, torch.torch, torch.cuda))
        findings += _of_nvrtc(torch.cuda)
    seen = [f"driver {driver.kernel or 'none'}"]
    seen += [f"torch for CUDA {torch.cuda}"] if torch.cuda else []
    return findings, ", ".join(seen)


def _of_driver(driver: DriverFiles) -> list[Finding]:
    findings = []
    if os.path.basename(os.path.dirname(driver.library)) == "stubs":
        findings.append(wording.stand_in(driver.library))
    elif (
        driver.kernel
        and numbers(driver.library_version)
        and driver.kernel != driver.library_version
        and "compat" not in driver.library
    ):
        findings.append(wording.halves_differ(driver))
    if driver.kernel and not driver.library:
        findings.append(wording.no_library(driver.kernel))
    if driver.devices and not driver.kernel:
        findings.append(wording.module_not_loaded(driver.devices))
    if driver.closed:
        findings.append(wording.devices_closed(driver.closed))
    return findings


def _of_nvrtc(cuda: str) -> list[Finding]:
    serving = copy_for(folder_of("torch"))
    if serving is None or serving.release is None or serving.release >= numbers(cuda)[:2]:
        return []
    return [wording.old_nvrtc(serving.path, ".".join(map(str, serving.release)), cuda)]


DRIVER_AND_CUDA = Check(
    "CG904",
    "driver, CUDA and NVRTC",
    "What the driver's kernel module says (/proc/driver/nvidia), its library, the device files, "
    "the CUDA that torch is built for, and the NVRTC that torch would load. No driver is loaded; "
    "--deep asks NVML in a child.",
    check,
)
