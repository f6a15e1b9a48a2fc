"""What is found of the C++ runtime of Windows."""

from __future__ import annotations

from cudaguard.core.findings import guarded_command, of_rule
from cudaguard.files import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.features.windows_runtime.policy import Copy
    from cudaguard.model import Finding, Rule

_WINGET = "winget install Microsoft.VCRedist.2015+.x64"


def too_late(rule: Rule, package: str, client: str, where: str, copy: Copy) -> Finding:
    """An old runtime is loaded when a package comes that needs a newer one.

    Args:
        rule: The rule.
        package: What is imported.
        client: Its library that needs it.
        where: The line that imports it.
        copy: The runtime; its owner is the package in whose folder it is, empty if it is in none.
    """
    first = f"`import {copy.owner}`" if copy.owner else "what loads that file"
    return of_rule(
        rule,
        f"{package} needs a newer C++ runtime than msvcp140.dll {_said(copy)}, which "
        f"{f'{copy.owner} has loaded' if copy.owner else 'is loaded'}.",
        f"imported at {where}" if where else "",
        copy.path,
        client,
        consequence=f"{package} crashes, or fails with 'OSError: [WinError 1114] A dynamic link "
        f"library (DLL) initialization routine failed' and {os.path.basename(client)}.",
        remedy=f"move `import {package}`{f' ({where})' if where else ''} above {first}, or call "
        "cudaguard.install() above it; the loaded copy cannot be replaced",
        command=guarded_command(),
    )


def none_is_new_enough(
    rule: Rule, package: str, client: str, where: str, copy: Copy | None
) -> Finding:
    """No copy of the runtime is new enough for a package; `copy` is the newest."""
    there = f"the newest msvcp140.dll is {_said(copy)}, of {copy.owner}" if copy else ""
    return of_rule(
        rule,
        f"{package} needs the C++ runtime of Windows in version 14.40 or newer"
        f"{f'; {there}' if there else ', and there is none'}.",
        f"imported at {where}" if where else "",
        copy.path if copy else "",
        client,
        remedy="update the Visual C++ Redistributable; without administrator rights: "
        "pip install msvc-runtime",
        command=_WINGET,
    )


def _said(copy: Copy) -> str:
    return ".".join(map(str, copy.version[:2]))
