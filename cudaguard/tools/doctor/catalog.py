"""The table of doctor's checks, in the order of the report. A new check is its file and a line."""

from __future__ import annotations

from importlib import import_module

import cudaguard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.core.checks import Check

# Id -> where in the package the check is declared. Loaded when it is asked for.
CHECKS = {
    "CG901": "tools.doctor.checks.rules:KNOWN_FAULTS",
    "CG902": "features.extensions.checks:EXTENSIONS",
    "CG903": "features.duplicate_libraries.checks.libraries:LIBRARIES",
    "CG904": "features.gpu_architectures.checks:DRIVER_AND_CUDA",
    "CG905": "features.duplicate_libraries.checks.installed:DISTRIBUTIONS",
    "CG906": "features.duplicate_libraries.checks.installed:PINNED_WHEELS",
    "CG907": "features.builds.checks:BUILD_TOOLS",
    "CG908": "features.builds.checks:BUILD_CACHE",
    "CG909": "tools.doctor.checks.guard:SETTINGS",
    "CG910": "tools.doctor.checks.ages:AGES",
    "CG911": "tools.doctor.checks.imports:ORDERS",
    "CG912": "tools.doctor.checks.imports:IMPORTS",
    "CG913": "tools.doctor.checks.machine:GPUS",
    "CG914": "tools.doctor.checks.machine:PLUGINS",
}


def check_of(id: str) -> Check:
    """Return a check of the table."""
    module, _, name = CHECKS[id].partition(":")
    check: Check = getattr(import_module(f".{module}", cudaguard.__name__), name)
    return check


def all_checks() -> dict[str, Check]:
    """Return all checks by their ids, in the order of the table."""
    return {id: check_of(id) for id in CHECKS}
