"""An NVRTC that knows the GPUs of this machine, in place of torch's own that does not."""

from __future__ import annotations

from cudaguard.core.repairs import Done, Refused
from cudaguard.files import os
from cudaguard.model import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudaguard.core.repairs import Outcome, Request
    from cudaguard.features.gpu_architectures.policy import Pair

_NVML = "libnvidia-ml.so.1"


def preload_newer_nvrtc(request: Request) -> Iterator[Outcome]:
    """Open an NVRTC that knows the GPUs of this machine before torch, whose own does not.

    Where one of the GPUs works as it is nothing is changed: the code that it gets would be another
    compiler's. NVML is asked, which loads it, only where another copy knows more.
    """
    if not request.permit.acts or request.name != "torch":
        return
    from cudaguard.core.findings import not_preloaded
    from cudaguard.features.gpu_architectures import findings
    from cudaguard.features.gpu_architectures.policy import TARGETS, Torch, can_compile, has_code
    from cudaguard.system.preload import has_driver, is_mapped, open_all

    if not has_driver():
        return
    from cudaguard.system.torch_build import architectures, build_of, copy_for, installed_copies

    folder = os.path.dirname(request.path or "")
    own = copy_for(folder)
    if own is None or own.release not in TARGETS or is_mapped(own.name):
        return
    others = {c.release: c for c in installed_copies(own.name) if c.release in TARGETS}
    if not any(TARGETS[release] - TARGETS[own.release] for release in others if release):
        return
    torch = Torch(build_of(folder).get("__version__", ""), architectures(folder))
    devices = [device for device in _ask_nvml(request) if has_code(torch, device)]
    if not devices or any(can_compile(torch, own.release, device) for device in devices):
        return
    fitting = [r for r in others if r and all(can_compile(torch, r, d) for d in devices)]
    if fitting:  # the next one to that which torch was made with
        better = others[min(fitting)]
        _, error = open_all(better.with_builtins())
        if error is not None:
            yield Refused(not_preloaded(request.rule, request.name, error), cause=error)
        else:
            how = findings.as_it_knows(better, own, devices)
            yield Done(better.path, f"loaded before {request.name}, {how}")


def _ask_nvml(request: Request) -> tuple[Pair, ...]:
    """Return the compute capabilities of the GPUs here; that NVML is loaded is noted."""
    from cudaguard.system.machine import compute_capabilities
    from cudaguard.system.preload import is_mapped

    was_there = is_mapped(_NVML)
    devices = compute_capabilities()
    if not was_there and is_mapped(_NVML):
        words = f"{_NVML}: loaded before {request.name}, to ask it, by {request.rule.id}"
        request.reporter.changed(words, stays=True)
    return devices
