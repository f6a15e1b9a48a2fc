"""Judges new owners of telling names: what is wrong with that, and who did it."""

from __future__ import annotations

import sys

from cudaguard.core.decide import applies
from cudaguard.core.patterns import matches, values_of
from cudaguard.core.reports import LATER
from cudaguard.elf.process import at_start
from cudaguard.errors import ImportOrderError
from cudaguard.features.symbol_scope.facts import names_library, packages_of, runtime_among
from cudaguard.features.symbol_scope.findings import CTYPES, GUARD, Culprit, Hijack, hijacked
from cudaguard.features.symbol_scope.repair import hide, wanted_back
from cudaguard.files import os
from cudaguard.hooks.caller import caller_frame, describe, frame_outside, is_importing, module_of
from cudaguard.hooks.loader import is_imported, is_under_way
from cudaguard.system.facts import Facts, Packages
from cudaguard.system.symbol_families import LEGITIMATE_OWNERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.core.detection import NativeLoad
    from cudaguard.core.dispatch import Dispatch
    from cudaguard.core.reports import Later
    from cudaguard.model import Rule


def judge(
    core: Dispatch,
    moved: list[tuple[str, str, str, str]],
    load: NativeLoad | None,
    since: str,
) -> None:
    """Report the new owners that are neither legitimate nor in a rule's care.

    Args:
        core: Knows the rules, and is told.
        moved: Name, family, and the files that own it now and owned it before.
        load: What was loaded, if that was seen.
        since: Otherwise why not, see `cudaguard.features.symbol_scope.findings`.

    Raises:
        ImportOrderError: in `strict`, from an import.
    """
    packages, facts = Packages(), Facts()
    hijacks: list[Hijack] = []
    owners = dict.fromkeys(new for _, _, new, _ in moved)
    runtime = runtime_among(owners)
    for owner in owners:
        package = packages.of(owner)
        if _is_at_home(owner, package, load, since) or any(
            _cares(core, rule, load, since, facts, bool(runtime))
            for rule in _rules_about(core, owner, package, load)
        ):
            continue
        own = tuple((name, family, old) for name, family, new, old in moved if new == owner)
        hijacks.append(Hijack(owner, package, own))
    if not hijacks:
        return
    frame = caller_frame()
    culprit = Culprit("", "", "")
    stop: ImportOrderError | Later = LATER
    if load is not None:
        culprit = Culprit(module_of(frame), describe(frame), describe(frame_outside(frame)))
    finding = hijacked(hijacks, load, culprit, since, runtime)
    if load is not None and is_importing():
        name = load.extension or culprit.module
        stop = ImportOrderError(finding.as_error(), name=name, path=load.library)
    core.reporter.found(finding, frame, stop=stop)


def _is_at_home(owner: str, package: str, load: NativeLoad | None, since: str) -> bool:
    """Return True if this library may own such names."""
    name = os.path.basename(owner)
    program = os.path.realpath(sys.executable or "")
    if owner in ("", program) or matches(name, LEGITIMATE_OWNERS):
        return True
    preloaded = at_start("LD_PRELOAD").replace(":", " ").split()
    if name in map(os.path.basename, preloaded):
        return True
    # There from the start and in no package: it came with the program that Python is part of.
    return load is None and since in (GUARD, CTYPES) and not package


def _rules_about(core: Dispatch, owner: str, package: str, load: NativeLoad | None) -> list[Rule]:
    """Return the rules that name the library, what was loaded with it, or its package."""
    names, libraries = {package.lower()}, [owner]
    if load is not None:
        names.add(load.extension.partition(".")[0].lower())
        libraries.append(load.library)
    names.discard("")
    return [
        entry.rule
        for entry in core.registry.entries
        if any(verb in ("load_local", "hide_symbols") for verb, _ in entry.does)
        if not names.isdisjoint(packages_of(entry.rule))
        or any(names_library(entry.rule, library) for library in libraries)
    ]


def _cares(
    core: Dispatch, rule: Rule, load: NativeLoad | None, since: str, facts: Facts, has_runtime: bool
) -> bool:
    """Return True if the rule handles this itself: it does not apply, reports it, or repairs it.

    A rule that should have kept the names out and did not must not silence what is seen.
    """
    if not applies(rule, facts):
        return True
    imported = [name for name in rule.watch if is_imported(name)]
    if since == GUARD:
        return bool(imported)  # late_imports looks at what was imported before the guard
    # It tells where the scope is asked for.
    has_told = load is not None and load.is_global and bool(values_of(rule, "load_local"))
    if not core.permit(rule).acts or (has_runtime and has_told):
        return has_told
    if not imported or not values_of(rule, "hide_symbols"):
        return False
    if any(map(is_under_way, imported)):
        wanted_back.add(rule.id)  # its own parts may need the names until it is imported
    else:
        core.repairs.do_now(hide, rule, "hide_symbols", imported[0])
    return True
