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

    from cudaguard.core.checks import BROKEN, SKIPPED, run_checks
    from cudaguard.errors import CudaGuardError, CudaGuardWarning
    from cudaguard.system.site import Site
    from cudaguard.tools.doctor.catalog import all_checks

    checks = [check for check in all_checks().values() if not check.option]
    results = list(run_checks(Site(), checks, lambda *_: None))
    problems = [f"{one.id}: {one.reason}" for one in results if one.status == BROKEN]
    for result in results:
        for finding in result.findings:
            if finding.severity == "error":
                problems.append(str(finding))
            elif finding.severity != "info" or verbose:
                warnings.warn(str(finding), CudaGuardWarning, stacklevel=2)
    if problems:
        text = "\n  ".join((*problems, "more: cudaguard doctor --verbose"))
        # rapids-cli 0.2.0 loses the error of the first check that it makes.
        print(f"cudaguard: {text}", file=sys.stderr)
        raise CudaGuardError(text)
    made = sum(result.status != SKIPPED for result in results)
    return f"{made} checks made, {len(results) - made} skipped"
