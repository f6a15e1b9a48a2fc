"""An NVRTC that knows the GPUs of this machine, in place of torch's own that does not."""

from __future__ import annotations

from cudaguard.core.findings import loaded_before, not_preloaded
from cudaguard.core.request import Done, Refused
from cudaguard.features.gpu_architectures import findings
from cudaguard.features.gpu_architectures.policy import KNOWN, helps, nearest, torch_of
from cudaguard.files import os
from cudaguard.system.preload import has_driver, is_mapped, open_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudaguard.core.request import Outcome, Request
    from cudaguard.features.gpu_architectures.policy import Pair

_NVML = "libnvidia-ml.so.1"


def preload_newer_nvrtc(request: Request) -> Iterator[Outcome]:
    """Open an NVRTC that knows the GPUs of this machine before torch, whose own does not.

    NVML is asked, which loads it, only where a better copy is installed and there is a driver.
    """
    if not request.permit.acts or request.name != "torch" or not has_driver():
        return
    from cudaguard.system.torch_build import (
        architectures,
        builtins_of,
        copy_for,
        installed_copies,
        release_of,
    )

    folder = os.path.dirname(request.path or "")
    own = copy_for(folder)
    if own is None or own.release not in KNOWN or is_mapped(own.name):
        return
    known = KNOWN[own.release]
    others = [copy for copy in installed_copies(own.name) if copy.release in KNOWN]
    if not any(KNOWN[copy.release] - known for copy in others if copy.release is not None):
        return
    release = release_of(folder)
    devices = _ask_nvml(request)
    torch = torch_of(release, architectures(folder))
    better = nearest(c for c in others if helps(c.release, devices, torch, own.release))
    if better is None:
        return
    _, error = open_all((better.path, *builtins_of(better)))
    if error is not None:
        yield Refused(not_preloaded(request.rule, request.name, error), cause=error)
    else:
        how = f"{loaded_before(request.name)}, {findings.as_it_knows(better, own, devices)}"
        yield Done(better.path, how)


def _ask_nvml(request: Request) -> tuple[Pair, ...]:
    """Return the compute capabilities of the GPUs; that NVML is loaded is noted."""
    from cudaguard.system.machine import compute_capabilities

    was_there = is_mapped(_NVML)
    devices = compute_capabilities()
    if not was_there and is_mapped(_NVML):
        words = f"{_NVML}: loaded before {request.name}, to ask it, by {request.rule.id}"
        request.reporter.changed(words, stays=True)
    return devices
