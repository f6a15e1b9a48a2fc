"""Compilers that know the GPUs of this machine, in place of those that do not."""

from __future__ import annotations

import sys

from cudaguard.core.messages import loaded_before, not_preloaded
from cudaguard.core.replace import Replaced
from cudaguard.core.request import Done, Refused
from cudaguard.features.gpu_architectures.architectures import FUSERS, KNOWN, PTXAS_VARIABLES
from cudaguard.features.gpu_architectures.messages import architectures as wording
from cudaguard.features.gpu_architectures.policy.architectures import helps, torch_of
from cudaguard.files import os
from cudaguard.system.preload import has_driver, is_mapped, open_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from cudaguard.core.request import Outcome, Request

    Capability = tuple[int, int]

_NVML = "libnvidia-ml.so.1"


def preload_newer_nvrtc(request: Request) -> Iterator[Outcome]:
    """Open an NVRTC that knows the GPUs of this machine before torch, whose own does not.

    NVML is asked, which loads it, only where a better copy is installed and there is a driver.
    """
    if not request.permit.acts or request.name != "torch" or not has_driver():
        return
    from cudaguard.features.gpu_architectures.torch_builds import nearest
    from cudaguard.system.nvrtc import builtins_of, copy_for, installed_copies
    from cudaguard.system.torch_build import architectures, release_of

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
        how = f"{loaded_before(request.name)}, {wording.as_it_knows(better, own, devices)}"
        yield Done(better.path, how)


def use_newer_ptxas(request: Request) -> Iterator[Outcome]:
    """Name an installed ptxas to Triton that knows the GPUs which its own does not."""
    if not request.permit.acts or request.name not in request.rule.watch or not has_driver():
        return
    from cudaguard.features.gpu_architectures.triton import lacking_ptxas
    from cudaguard.system.driver import Driver

    devices = Driver().capabilities() or _ask_nvml(request)
    for lack in lacking_ptxas(devices):
        better = lack.better
        for name in PTXAS_VARIABLES[lack.used.name] if better is not None else ():
            if name not in os.environ and better is not None:
                os.environ[name] = better.path
                yield Done(f"{name}={better.path}", wording.ptxas_named(lack, better))


def _ask_nvml(request: Request) -> tuple[Capability, ...]:
    """Return the compute capabilities of the visible devices; that NVML is loaded is noted."""
    from cudaguard.system.devices import compute_capabilities

    was_there = is_mapped(_NVML)
    devices = compute_capabilities()
    if not was_there and is_mapped(_NVML):
        words = f"{_NVML}: loaded before {request.name}, to ask it, by {request.rule.id}"
        request.reporter.changed(words, stays=True)
    return devices


def disable_fusers(request: Request) -> Iterator[Outcome]:
    """Switch off the fusers of TorchScript for GPUs, which compile kernels through NVRTC."""
    core = getattr(sys.modules[request.name], "_C", None)
    if not request.permit.acts or core is None:
        return
    place = f"{request.name}._C: fusers of TorchScript for GPUs are off"
    if request.put(place, core, lambda *_: FusersOff(core)):
        yield Done(f"{request.name}._C", wording.FUSERS_OFF, stays=False)


class FusersOff(Replaced):
    """The fusers of one torch, switched off; put back as attributes are.

    Args:
        core: ``torch._C``; a torch without some of the switches has none of those fusers.
    """

    def __init__(self, core: Any) -> None:
        self._core = core
        self._were_on = [
            setter for getter, setter in FUSERS if hasattr(core, setter) and getattr(core, getter)()
        ]
        for setter in self._were_on:
            getattr(core, setter)(False)

    def is_in_place(self, owner: Any) -> bool:
        """Return True if this torch was given."""
        return owner is self._core

    def undo(self) -> bool:
        """Switch on again those that were on."""
        for setter in self._were_on:
            getattr(self._core, setter)(True)
        return True
