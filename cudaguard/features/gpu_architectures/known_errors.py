"""What a message about architectures of GPUs means, with what is true of this process."""

from __future__ import annotations

from cudaguard.core.known_errors import Explainer, known_in
from cudaguard.features.gpu_architectures import findings
from cudaguard.features.gpu_architectures.checks import look_at_torch
from cudaguard.features.gpu_architectures.policy import dotted
from cudaguard.files import own_errors
from cudaguard.system.torch_build import mapped_copies

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.model import Finding


def with_facts(finding: Finding) -> Finding:
    """Return what a message of NVRTC or of CUDA means, with what is true of this process."""
    from cudaguard.system.driver import Driver

    try:
        devices = Driver().capabilities()
        here = next(look_at_torch(), None)
    except own_errors(AttributeError, ImportError):  # no ctypes, or odd C library
        return finding
    if here is not None:
        evidence = (*finding.evidence, *here.evidence)
        return here.replace(severity=finding.severity, evidence=evidence)
    if not devices:
        return finding
    facts = [f"device {n} has compute capability {dotted(d)}" for n, d in enumerate(devices)]
    facts += map(findings.compiler_line, mapped_copies())
    return finding.replace(evidence=(*finding.evidence, *facts))


EXPLAINER = Explainer(
    known_in(__file__, vars(findings)),
    with_facts,
    (findings.LACKS_CODE.id, findings.LACKS_COMPILER.id),
)
