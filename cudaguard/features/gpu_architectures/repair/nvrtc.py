"""torch on GPUs that it, or its NVRTC, does not know: looked at, and helped where certain."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from cudaguard.core.caller import caller_frame, describe
from cudaguard.core.decide import applies
from cudaguard.core.messages import not_preloaded
from cudaguard.core.repair import REPAIRING
from cudaguard.errors import ImportOrderError, ImportOrderWarning
from cudaguard.features.gpu_architectures.architectures import KNOWN
from cudaguard.features.gpu_architectures.messages import architectures as wording
from cudaguard.features.gpu_architectures.policy.architectures import (
    CANNOT_RUN,
    FINE,
    NO_JIT,
    asked_for,
    cure_for,
    helps,
    torch_of,
    verdict,
)
from cudaguard.system.facts import Facts
from cudaguard.system.modules import peek
from cudaguard.system.nvrtc import builtins_of, copy_for, installed_copies
from cudaguard.system.torch_build import architectures, folder_of, release_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from importlib.machinery import ModuleSpec

    from cudaguard.core.repair import Engine
    from cudaguard.model import Finding, Rule
    from cudaguard.system.gpus import Compiler, Torch

    Capability = tuple[int, int]

_NVML = "libnvidia-ml.so.1"


class Situation(NamedTuple):
    """A torch on the devices of this process.

    Args:
        devices: Their compute capabilities, by ordinal.
        torch: What it was built for.
        nvrtc: The NVRTC that serves it, or will; None if that is not known.
    """

    devices: tuple[Capability, ...]
    torch: Torch
    nvrtc: Compiler | None

    def with_verdict(self, wanted: str) -> dict[int, Capability]:
        """Return the devices of which a verdict is true, by ordinal."""
        release = None if self.nvrtc is None else self.nvrtc.release
        return {
            ordinal: device
            for ordinal, device in enumerate(self.devices)
            if verdict(device, self.torch, release) == wanted
        }


def look_at_torch(devices: tuple[Capability, ...]) -> Situation | None:
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
        cure = cure_for(list(hopeless.values()), 0)
        loud = default in hopeless
        found.append(wording.cannot_run(situation.torch, hopeless, cure, loud=loud))
    nvrtc = situation.nvrtc
    if lame and nvrtc is not None and nvrtc.release is not None:
        devices = list(lame.values())
        found.append(
            wording.no_jit(
                lame,
                nvrtc,
                sorted({asked_for(device, situation.torch, nvrtc.release) for device in devices}),
                sorted(KNOWN[nvrtc.release]),
                better_copy(situation, devices),
                cure_for(devices, nvrtc.release[0]),
                loud=default in lame,
            )
        )
    return found


def better_copy(situation: Situation, devices: Sequence[Capability]) -> Compiler | None:
    """Return the installed NVRTC that would serve devices which the present one does not know."""
    if situation.nvrtc is None:
        return None
    fitting = [
        copy
        for copy in installed_copies(situation.nvrtc.name)
        if all(verdict(device, situation.torch, copy.release) == FINE for device in devices)
    ]
    return _nearest(fitting)


def preload_nvrtc(engine: Engine, rules: tuple[Rule, ...], spec: ModuleSpec) -> None:
    """Open an NVRTC that knows the GPUs of this machine before torch, whose own does not.

    NVML is asked, which loads it, only where a better copy is installed and there is a driver.

    Args:
        engine: Knows the mode, and is told.
        rules: Rules with the action ``preload_newer_nvrtc``.
        spec: torch.

    Raises:
        ImportOrderError: in `strict`, where the loader refuses that copy.
    """
    from cudaguard.system.preload import has_driver, is_mapped, open_all

    facts = Facts()
    rule = next((r for r in rules if r.grade != "report" and applies(r, facts)), None)
    if rule is None or engine.mode not in REPAIRING or spec.name != "torch" or not has_driver():
        return
    folder = os.path.dirname(spec.origin or "")
    own = copy_for(folder)
    if own is None or own.release not in KNOWN or is_mapped(own.name):
        return
    known = KNOWN[own.release]
    others = [copy for copy in installed_copies(own.name) if copy.release in KNOWN]
    if not any(KNOWN[copy.release] - known for copy in others if copy.release is not None):
        return
    release = release_of(folder)
    devices = ask_nvml(engine, rule, spec.name)
    torch = torch_of(release, architectures(folder))
    better = _nearest(c for c in others if helps(c.release, devices, torch, own.release))
    if better is None:
        return
    _, error = open_all((better.path, *builtins_of(better)))
    if error is not None:
        finding = not_preloaded(rule, spec.name, error)
        engine.tell(finding, ImportOrderWarning, frame=caller_frame())
        if engine.mode == "strict":
            raise ImportOrderError(finding.what, name=spec.name, path=spec.origin) from error
        return
    engine.journal.note("repair", f"{rule.id} nvrtc {better.path}", describe(caller_frame()))
    engine.changes[f"{better.path}: loaded before {spec.name} by {rule.id} (stays)"] = None
    engine.log(wording.nvrtc_preloaded(rule.id, better, own, devices))


def ask_nvml(engine: Engine, rule: Rule, module: str) -> tuple[Capability, ...]:
    """Return the compute capabilities of the visible devices; that NVML is loaded is noted.

    Args:
        engine: Is told.
        rule: The rule that wants to know.
        module: The module that is about to be imported.
    """
    from cudaguard.system.devices import compute_capabilities
    from cudaguard.system.preload import is_mapped

    was_there = is_mapped(_NVML)
    devices = compute_capabilities()
    if not was_there and is_mapped(_NVML):
        engine.changes[f"{_NVML}: loaded before {module}, to ask it, by {rule.id} (stays)"] = None
    return devices


def _nearest(copies: Iterable[Compiler]) -> Compiler | None:
    """Return the copy of the lowest release: the next one to that which torch was made with."""
    return min((c for c in copies if c.release is not None), key=_by_release, default=None)


def _by_release(copy: Compiler) -> tuple[int, int]:
    return copy.release or (0, 0)
