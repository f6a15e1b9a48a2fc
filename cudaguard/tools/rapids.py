"""The checks of `cudaguard doctor` as one check of ``rapids doctor``.

An entry point of the group ``rapids_doctor_check``: a function that returns what it has seen, or
warns, or raises. What is found only with ``--deep`` or ``--orders`` is for our own command.

Source: https://github.com/rapidsai/rapids-cli, "Check plugins".
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def cudaguard_check(verbose: bool = False, **_: Any) -> str:
    """Check whether CUDA libraries and their extensions fit together, by reading files.

    Args:
        verbose: Warn of notes as well.

    Returns:
        How many checks were made.

    Raises:
        CudaGuardError: Something would break, or a check could not be made; the text says what.
    """
    import sys
    import warnings

    from cudaguard.errors import CudaGuardError, CudaGuardWarning
    from cudaguard.system.site import Site
    from cudaguard.tools.doctor.catalog import CHECKS
    from cudaguard.tools.doctor.examine import examine

    ids = [id for id, topic in CHECKS.items() if not topic.when]
    checks = list(examine(Site(), ids, lambda *_: None))
    problems = [f"{check.id}: {check.reason}" for check in checks if check.status == "broken"]
    for check in checks:
        for finding in check.findings:
            if finding.severity == "error":
                problems.append(str(finding))
            elif finding.severity == "warning" or verbose:
                warnings.warn(str(finding), CudaGuardWarning, stacklevel=2)
    if problems:
        text = "\n  ".join((*problems, "more: cudaguard doctor --verbose"))
        # rapids-cli 0.2.0 loses the error of the first check that it makes.
        print(f"cudaguard: {text}", file=sys.stderr)
        raise CudaGuardError(text)
    made = sum(check.status != "skipped" for check in checks)
    return f"{made} checks made, {len(checks) - made} skipped"
