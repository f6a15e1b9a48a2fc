"""What messages about GPU architectures mean in this very process."""

from __future__ import annotations

from cudaguard.core.explainer import Explainer
from cudaguard.features.gpu_architectures.architectures import KNOWN
from cudaguard.features.gpu_architectures.known_errors import compilers, driver
from cudaguard.features.gpu_architectures.messages import architectures as wording
from cudaguard.features.gpu_architectures.torch_builds import findings_of, look_at_torch
from cudaguard.files import ours
from cudaguard.system.nvrtc import mapped_copies

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.model import Finding


def with_facts(finding: Finding) -> Finding:
    """Return what a message of NVRTC or of CUDA means, with what is true of this process.

    Args:
        finding: What is known of the message; where nothing is known of the devices it comes back
            as it is.
    """
    try:
        from cudaguard.system.driver import Driver

        devices = Driver().capabilities()
    except ours(AttributeError, ImportError):  # no ctypes, or a C library that cannot be asked
        return finding
    if not devices:
        return finding
    situation = look_at_torch(devices)
    found = findings_of(situation, 0) if situation is not None else []
    if found:
        return wording.more_exactly(finding, found[0])
    there = [(copy, sorted(KNOWN.get(copy.release or (0, 0), ()))) for copy in mapped_copies()]
    return wording.with_copies(finding, devices, there)


EXPLAINER = Explainer((*compilers.KNOWN, *driver.KNOWN), with_facts, ("CG861", "CG862"))
