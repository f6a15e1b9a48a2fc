"""What messages about GPU architectures mean in this very process."""

from __future__ import annotations

from cudaguard.core.explainer import Explainer
from cudaguard.features.gpu_architectures import kernel_compilers
from cudaguard.features.gpu_architectures.architectures import KNOWN
from cudaguard.features.gpu_architectures.known_errors import compilers, driver
from cudaguard.features.gpu_architectures.messages import architectures as wording
from cudaguard.features.gpu_architectures.torch_builds import findings_of, look_at_torch
from cudaguard.features.gpu_architectures.triton import finding_of, lacking_ptxas
from cudaguard.files import ours
from cudaguard.system.nvrtc import mapped_copies

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cudaguard.model import Finding

    Capability = tuple[int, int]


def with_facts(finding: Finding) -> Finding:
    """Return what a message of a compiler or of CUDA means, with what is true of this process.

    Args:
        finding: What is known of the message; where nothing is known of the devices it comes back
            as it is.
    """
    try:
        from cudaguard.system.driver import Driver

        devices = Driver().capabilities()
    except ours(AttributeError, ImportError):  # no ctypes, or a C library that cannot be asked
        return finding
    return _ADDING[finding.id](finding, devices) if devices else finding


def _with_nvrtc(finding: Finding, devices: tuple[Capability, ...]) -> Finding:
    situation = look_at_torch(devices)
    ours = findings_of(situation, 0) if situation is not None else []
    ours = ours or kernel_compilers.findings_of(devices, 0)
    if ours:
        return wording.more_exactly(finding, ours[0])
    there = [(copy, sorted(KNOWN.get(copy.release or (0, 0), ()))) for copy in mapped_copies()]
    return wording.with_copies(finding, devices, there)


def _with_ptxas(finding: Finding, devices: tuple[Capability, ...]) -> Finding:
    lacks = lacking_ptxas(devices)
    return wording.more_exactly(finding, finding_of(lacks)) if lacks else finding


def _with_compilers(finding: Finding, devices: tuple[Capability, ...]) -> Finding:
    ours = [one for one in kernel_compilers.findings_of(devices, 0) if one.id == finding.id]
    return wording.more_exactly(finding, ours[0]) if ours else finding


_ADDING: dict[str, Callable[[Finding, tuple[Capability, ...]], Finding]] = {
    "CG861": _with_nvrtc,
    "CG862": _with_nvrtc,
    "CG863": _with_ptxas,
    "CG897": _with_compilers,
    "CG898": _with_compilers,
}

EXPLAINER = Explainer((*compilers.KNOWN, *driver.KNOWN), with_facts, _ADDING)
