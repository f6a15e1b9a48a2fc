"""GPUs that Triton's ptxas does not know."""

from __future__ import annotations

import os

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
from cudaguard.system.gpus import Compiler, UnknownDevice, architecture
from cudaguard.system.torch_build import are_wheels_known, folder_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cudaguard.model import Finding

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
    devices = [lack.device for lack in lacks]
    cure = cure_for(devices, major, PTXAS_WHEELS, with_torch=are_wheels_known())
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
