"""The wording of an extension that the loader has refused, or that was kept from it."""

from __future__ import annotations

import shlex

from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.elf.extension_check import ExtensionCheck

REFUSED, FAILED = "CG840", "CG841"


def not_loaded(
    check: ExtensionCheck, said: str, where: str, built_by: str = "", *, is_import: bool = True
) -> Finding:
    """An extension or library that the loader has refused, or that was kept from it."""
    evidence = [f"{'imported' if is_import else 'loaded'} at {where}"] if where else []
    fails = "the import fails." if is_import else "the library is not loaded."
    evidence += [f"the loader: {said}"] if said else []
    evidence.append(f"{check.path}{f', built by GCC {built_by}' if built_by else ''}")
    return Finding(
        FAILED if said else REFUSED,
        f"{check.message}.",
        severity="error",
        evidence=evidence,
        consequence=fails if said else "loading it would probably end the process (SIGBUS).",
        remedy=check.remedy,
        command=f"cudaguard check-extension {shlex.quote(check.path)}",
    )


def error_text(check: ExtensionCheck, said: str) -> str:
    """Return what the error says: the cause, what to do, and the loader's own words."""
    lines = [f"{check.message}."]
    if check.remedy:
        lines.append(f"  remedy: {check.remedy}")
    if said:
        lines.append(f"  the loader: {said}")
    return "\n".join(lines)
