"""Findings about import order: modules that must come first, search paths set too late."""

from __future__ import annotations

import shlex

from cudaguard.core.findings import Kind, have_it_repaired, of_rule
from cudaguard.files import os
from cudaguard.model import TYPE_CHECKING

if TYPE_CHECKING:
    from cudaguard.core.findings import Finding
    from cudaguard.core.rule import Rule

SEARCH_PATH_TOO_LATE = Kind(
    "CG820",
    "LD_LIBRARY_PATH was changed after Python started",
    "LateEnvironmentWarning",
    consequence="The dynamic loader reads LD_LIBRARY_PATH only once, when a process starts.",
    remedy="set LD_LIBRARY_PATH before Python starts, or load the library by its path",
    page="howto/cuda.md",
)


def left_to_chance(rule: Rule, target: str, files: tuple[str, ...], where: str) -> Finding:
    """Libraries that a rule wants opened before a module are not, as mode or grade forbid it."""
    remedy, command = have_it_repaired(rule)
    return of_rule(
        rule,
        f"{target} was imported before {', '.join(map(os.path.basename, files))} was loaded.",
        f"imported at {where}" if where else "",
        *files,
        remedy=f"let cudaguard load {'them' if files[1:] else 'it'} first: {remedy}",
        command=command,
    )


def not_provided(rule: Rule, extension: str, library: str, where: str) -> Finding:
    """An extension needs a library of a module that is not imported, and nothing was done."""
    provider = rule.watch[0]
    how, command = have_it_repaired(rule)
    return of_rule(
        rule,
        f"{extension} needs {library} of {provider}, which is not imported yet.",
        f"imported at {where}" if where else "",
        remedy=f"import {provider} before {extension} (mark the line `# isort: skip`), or {how}",
        command=command,
    )


def search_path_too_late(library: str, folder: str, where: str) -> Finding:
    """A library was not found, and LD_LIBRARY_PATH has named its folder only since the start."""
    return SEARCH_PATH_TOO_LATE.found(
        f"{library} was not found: {folder} was added to LD_LIBRARY_PATH after Python started.",
        f"loaded at {where}" if where else "",
        remedy="set it in the shell that starts the program, or load the library by its path "
        f"first: ctypes.CDLL({folder + '/' + library!r})",
        command=f"export LD_LIBRARY_PATH={shlex.quote(folder)}"
        '"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"',
    )
