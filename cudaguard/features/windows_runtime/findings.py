"""Findings about the C++ runtime of Windows."""

from __future__ import annotations

import shlex

from cudaguard.core.findings import Kind, guarded_command, listed, of_rule
from cudaguard.files import os
from cudaguard.model import TYPE_CHECKING, NamedTuple
from cudaguard.system.pe import INSTALL_RUNTIME

if TYPE_CHECKING:
    from cudaguard.core.findings import Finding
    from cudaguard.core.rule import Rule

DLL_COPIES = Kind("CG920", "DLLs that several packages have")


class RuntimeCopy(NamedTuple):
    """A copy of a library: its file version, its path, and what it belongs to."""

    version: tuple[int, ...]
    path: str
    owner: str


def older_beside(copy: RuntimeCopy, clients: list[str]) -> Finding:
    """A distribution has an old runtime, and these need a newer one."""
    return DLL_COPIES.found(
        f"{copy.owner} has msvcp140.dll {_said(copy)}, and {listed(clients)} "
        f"need{'' if clients[1:] else 's'} 14.40 or newer.",
        copy.path,
        consequence="If it comes first, the others crash, or fail with 'OSError: [WinError 1114]'.",
        remedy="start the program with CUDAGUARD=fix, or import the others first",
        command=guarded_command(),
    )


def lacking_beside(owner: str, copy: str, user: str, file: str, function: str) -> Finding:
    """A distribution has a DLL without a function that another one uses of it."""
    name = os.path.basename(copy)
    return DLL_COPIES.found(
        f"{owner} has a {name} without functions that {user} needs.",
        *(copy, f"{file} needs {function}"),
        consequence=f"If {owner} comes first, {user} fails with 'The specified procedure could not "
        "be found' ([WinError 127]).",
        remedy=f"install versions with the same {name}, or import only one of them",
        command=f"cudaguard check-extension {shlex.quote(file)}",
    )


def old_runtime(rule: Rule, package: str, client: str, where: str, copy: RuntimeCopy) -> Finding:
    """A runtime of the package `copy.owner` is loaded, and older than `client` needs."""
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
    rule: Rule, package: str, client: str, where: str, copy: RuntimeCopy | None
) -> Finding:
    """No copy of the runtime is new enough for a package; `copy` is the newest."""
    there = f"the newest msvcp140.dll is {_said(copy)}, of {copy.owner}" if copy else ""
    return of_rule(
        rule,
        f"{package} needs the C++ runtime of Windows in version 14.40 or newer; "
        f"{there or 'there is none'}.",
        f"imported at {where}" if where else "",
        copy.path if copy else "",
        client,
        remedy="update the Visual C++ Redistributable; without administrator rights: "
        "pip install msvc-runtime",
        command=INSTALL_RUNTIME,
    )


def _said(copy: RuntimeCopy) -> str:
    return ".".join(map(str, copy.version[:2]))
