"""All checks of doctor, in the order of the report: those of features, and its own."""

from __future__ import annotations

from importlib import import_module

from cudaguard import api  # noqa: F401  # hands the features to the core
from cudaguard.core.table import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.core.checks import Check

# Those of environment and guard: id -> where it is declared, beside this.
_OWN = {
    "CG901": "guard:KNOWN_FAULTS",
    "CG909": "guard:SETTINGS",
    "CG911": "children:ORDERS",
    "CG912": "children:IMPORTS",
    "CG913": "children:GPUS",
}
CHECKS = tuple(sorted({*_OWN, *table.index.CHECKS}))  # ids


def check_of(id: str) -> Check:
    """Return a check by its id."""
    if id in _OWN:
        module, _, name = _OWN[id].partition(":")
        own: Check = getattr(import_module(f"{__name__}.{module}"), name)
        return own
    check: Check = table.resolve(table.index.CHECKS[id])
    return check


def all_checks() -> dict[str, Check]:
    """Return all checks by their ids, in the order of the report."""
    return {id: check_of(id) for id in CHECKS}
