"""GPUs that Triton's ptxas does not know."""

from __future__ import annotations

import os

from cudaguard.core.caller import caller_frame, describe
from cudaguard.core.decide import applies
from cudaguard.core.repair import REPAIRING
from cudaguard.features.gpu_architectures.architectures import (
    KNOWN,
    NEW_FROM,
    PTXAS,
    PTXAS_FOR_NEW,
    PTXAS_VARIABLES,
    PTXAS_WHEELS,
)
from cudaguard.features.gpu_architectures.facts import (
    installed_elsewhere,
    own_of_triton,
    release_of,
)
from cudaguard.features.gpu_architectures.messages import architectures as wording
from cudaguard.features.gpu_architectures.policy.architectures import cure_for
from cudaguard.features.gpu_architectures.repair.nvrtc import ask_nvml
from cudaguard.system.facts import Facts
from cudaguard.system.gpus import Compiler, UnknownDevice, architecture
from cudaguard.system.torch_build import folder_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.machinery import ModuleSpec

    from cudaguard.core.repair import Engine
    from cudaguard.model import Finding, Rule

    Capability = tuple[int, int]


def lacking_ptxas(devices: Sequence[Capability]) -> list[UnknownDevice]:
    """Return the devices that the ptxas of the installed Triton does not know."""
    folder = folder_of("triton")
    own = own_of_triton(folder) if folder else {}
    found = []
    for device in sorted(set(devices)):
        used = _used(own, device)
        if used.release in KNOWN and architecture(device) not in KNOWN[used.release]:
            found.append(UnknownDevice(device, used, _better(used, device)))
    return found


def finding_of(lacks: Sequence[UnknownDevice]) -> Finding:
    """Return what is to be said of devices that Triton's ptxas does not know."""
    used = lacks[0].used
    major = (used.release or (0, 0))[0]
    cure = cure_for([lack.device for lack in lacks], major, PTXAS_WHEELS)
    return wording.no_ptxas(lacks, cure, PTXAS_VARIABLES[used.name][0])


def _used(own: Mapping[str, str], device: Capability) -> Compiler:
    """Return the ptxas that Triton calls for a device."""
    name = PTXAS_FOR_NEW if PTXAS_FOR_NEW in own and device >= NEW_FROM else PTXAS
    said = (os.environ.get(variable, "") for variable in PTXAS_VARIABLES[name])
    path = next((path for path in said if os.path.isfile(path)), own.get(name, ""))
    return Compiler(path, name, release_of(path))


def _better(used: Compiler, device: Capability) -> Compiler | None:
    """Return the next installed ptxas of the same major release that knows a device.

    Of another one Triton may not know which PTX it takes.
    """
    major = (used.release or (0, 0))[0]
    fitting = {}
    for path in installed_elsewhere():
        release = release_of(path)
        if release in KNOWN and release[0] == major and architecture(device) in KNOWN[release]:
            fitting[release] = Compiler(path, used.name, release)
    return fitting[min(fitting)] if fitting else None


def point_to_ptxas(engine: Engine, rules: tuple[Rule, ...], spec: ModuleSpec) -> None:
    """Name an installed ptxas to Triton that knows the GPUs which its own does not.

    Args:
        engine: Knows the mode, and is told.
        rules: Rules with the action ``use_newer_ptxas``.
        spec: triton.
    """
    from cudaguard.system.driver import Driver
    from cudaguard.system.preload import has_driver

    facts = Facts()
    rule = next((r for r in rules if r.grade != "report" and applies(r, facts)), None)
    is_wanted = rule is not None and spec.name in rule.watch and engine.mode in REPAIRING
    if rule is None or not is_wanted or not has_driver():
        return
    devices = Driver().capabilities() or ask_nvml(engine, rule, spec.name)
    for lack in lacking_ptxas(devices):
        better = lack.better
        if better is None:
            continue
        for name in PTXAS_VARIABLES[lack.used.name]:
            if name in os.environ:
                continue
            os.environ[name] = better.path
            where = describe(caller_frame())
            engine.journal.note("repair", f"{rule.id} {name}={better.path}", where)
            engine.changes[f"{name}={better.path}: set by {rule.id} (stays)"] = None
            engine.log(wording.ptxas_named(rule.id, lack, better, name))
