"""Telling names have got new owners: is anything wrong with that, and who did it?"""

from __future__ import annotations

import os
import sys

from cudaguard.actions.scope import names_library, packages_of
from cudaguard.errors import ImportOrderError, SymbolScopeWarning
from cudaguard.hook.caller import (
    caller_frame,
    describe,
    frame_outside,
    is_importing,
    module_of,
)
from cudaguard.probe.packages import Packages
from cudaguard.repairs import REPAIRING
from cudaguard.report.hijack import Culprit, Hijack, Load, hijacked
from cudaguard.rules.families import FAMILIES, LEGITIMATE_OWNERS
from cudaguard.rules.patterns import matches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.model import Rule
    from cudaguard.repairs import Engine


def judge(
    engine: Engine,
    moved: list[tuple[str, str, str, str]],
    library: str,
    extension: str,
    *,
    is_global: bool,
) -> None:
    """Tell of the new owners that are neither legitimate nor in a rule's care.

    Args:
        engine: Knows the rules, and is told.
        moved: Name, family, and the files that own it now and owned it before.
        library: What was loaded, see `cudaguard.detectors.scope.ScopeDetector.look`.
        extension: As above.
        is_global: As above.

    Raises:
        ImportOrderError: in `strict`, from an import.
    """
    load = Load(library, extension, is_global) if library else None
    packages = Packages()
    hijacks = []
    for owner in dict.fromkeys(new for _, _, new, _ in moved):
        package = packages.of(owner)
        if _is_at_home(owner, package, load) or _has_rule(engine, owner, package, load):
            continue
        keys = dict.fromkeys(family for _, family, new, _ in moved if new == owner)
        hijacks.append(
            Hijack(
                owner,
                package,
                tuple((name, old) for name, _, new, old in moved if new == owner),
                tuple((key, FAMILIES[key].title, FAMILIES[key].danger) for key in keys),
            )
        )
    if hijacks:
        _tell(engine, tuple(hijacks), load)


def _is_at_home(owner: str, package: str, load: Load | None) -> bool:
    """May this library own such names?"""
    name = os.path.basename(owner)
    if not owner or owner == os.path.realpath(sys.executable) or matches(name, LEGITIMATE_OWNERS):
        return True
    if any(name == os.path.basename(path) for path in _preloaded()):
        return True
    # There from the start and in no package: it came with the interpreter.
    return load is None and not package


def _preloaded() -> list[str]:
    return os.environ.get("LD_PRELOAD", "").replace(":", " ").split()


def _has_rule(engine: Engine, owner: str, package: str, load: Load | None) -> bool:
    """Is the library in the care of a rule, which acts and tells by itself or chooses not to?"""
    registry = engine.registry
    caring = registry.scoping + (registry.demoting if engine.mode in REPAIRING else ())
    rules: dict[str, Rule] = {rule.id: rule for _, rule in caring}
    names = {package.lower()} - {""}
    libraries = [owner]
    if load is not None:
        names.add(load.extension.partition(".")[0].lower())
        libraries.append(load.library)
    return any(
        not names.isdisjoint(packages_of(rule))
        or any(names_library(rule, library) for library in libraries)
        for rule in rules.values()
    )


def _tell(engine: Engine, hijacks: tuple[Hijack, ...], load: Load | None) -> None:
    frame = caller_frame()
    culprit = Culprit(module_of(frame), describe(frame), describe(frame_outside(frame)))
    finding = hijacked(hijacks, load, culprit)
    if engine.tell(finding, SymbolScopeWarning, frame=frame) and engine.mode == "strict":
        if load is not None and is_importing():
            raise ImportOrderError(finding.what, name=load.extension, path=load.library)
        engine.deferred.append(finding.what)
