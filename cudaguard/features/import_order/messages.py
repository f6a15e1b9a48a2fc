"""The wording of import order: what must come first, and search paths that come too late."""

from __future__ import annotations

from cudaguard.core.messages import FIX
from cudaguard.files import os
from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.model import Rule


def left_to_chance(rule: Rule, target: str, files: tuple[str, ...], where: str) -> Finding:
    """Libraries that a rule wants opened before a module are not, as mode or grade forbid it."""
    return Finding(
        rule.id,
        f"{target} is imported before {', '.join(map(os.path.basename, files))} of an installed "
        "package.",
        rule=rule.id,
        evidence=(*((f"imported at {where}",) if where else ()), *files),
        consequence=rule.why,
        remedy="let cudaguard load it first: "
        + ("give the rule another grade" if rule.grade == "report" else FIX),
        links=rule.links,
    )


def not_provided(rule: Rule, extension: str, library: str, where: str) -> Finding:
    """An extension needs a library of a module that is not imported, and nothing was done."""
    provider = rule.watch[0]
    return Finding(
        rule.id,
        f"{extension} needs {library}, and {provider}, which has it, is not imported yet.",
        rule=rule.id,
        evidence=(f"imported at {where}",) if where else (),
        consequence=rule.why,
        remedy=f"import {provider} before {extension} (mark the line `# isort: skip`), or {FIX}",
        links=rule.links,
    )


def fetched(asking: str) -> str:
    """Return what has become of a library that another one was refused for."""
    return f"loaded for {asking}, which did not find it"


def newest_first(asking: str) -> str:
    """Return what has become of the environment's copy of a library."""
    return f"loaded before {asking}, as the newest copy"


def search_path_too_late(library: str, folder: str, where: str) -> Finding:
    """A library was not found, and LD_LIBRARY_PATH has named its folder only since the start."""
    return Finding(
        "CG820",
        f"{library} was not found, though LD_LIBRARY_PATH names {folder}, which has it.",
        evidence=(f"asked for at {where}",) if where else (),
        consequence="LD_LIBRARY_PATH was changed in the running process: the loader reads it once, "
        "when a process is started.",
        remedy="set it in the shell that starts the program, or open the library by its path "
        f"before it is needed: ctypes.CDLL({folder + '/' + library!r})",
    )
