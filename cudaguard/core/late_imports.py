"""Modules that the guard could not act on: imported before it came, or past it."""

from __future__ import annotations

import sys

from cudaguard.core import findings
from cudaguard.core.decide import applies, named_versions
from cudaguard.core.reports import LATER
from cudaguard.hooks.caller import caller_frame
from cudaguard.hooks.loader import is_imported
from cudaguard.system.facts import Facts
from cudaguard.system.modules import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.core.dispatch import Dispatch
    from cudaguard.core.registry import RuleEntry

_told: set[tuple[str, str]] = set()  # module and rule: one look is enough


def check_already_imported(core: Dispatch, *, at_start: bool) -> None:
    """Do what can be done for modules that are there, and report the rules that came too late."""
    core.repairs.after_all()
    done = 0
    for name, entries in list(core.registry.by_module.items()):
        if not is_imported(name):
            continue
        is_late = name not in core.seen
        if is_late:
            core.early.add(name)
        for one in entries:
            is_missed, number = core.repairs.late(name, one, is_late=is_late, at_start=at_start)
            done += number
            if is_late and (name, one.id) not in _told:
                _told.add((name, one.id))
                _tell_late(core, name, one, is_missed=is_missed, at_start=at_start)
    if done:
        core.repairs.again()


def _tell_late(
    core: Dispatch, name: str, one: RuleEntry, *, is_missed: bool, at_start: bool
) -> None:
    is_only_told = one.grade == "report" and not one.needs and not one.does
    if not is_only_told and not (one.needs or is_missed):
        return
    rule = one.rule
    if not applies(rule, Facts()):
        return
    if is_only_told:  # it would have changed nothing to come earlier
        core.reporter.found(findings.known_fault(rule, name, "", named_versions(rule, Facts())))
        return
    missing = core.prerequisites().missing_before(rule, name)
    if rule.grade == "report" and not is_missed:  # nor would it have repaired anything in time
        for need in missing:
            core.reporter.found(findings.out_of_order(rule, need, name, ""), caller_frame())
    elif is_missed or missing:
        verbs = core.repairs.table.index.VERBS
        verb = next((verb for verb, _ in one.does if "late" in verbs[verb]), "")
        finding = findings.too_late(rule, name, at_start=at_start)
        core.reporter.found(finding, caller_frame(), stop=LATER, verb=verb)


def record_bypassed(core: Dispatch) -> None:
    """Record the watched modules that were imported and never came through the hook."""
    for name in core.registry.by_module:
        module = sys.modules.get(name)
        # A package without code of its own is loaded by no loader of a file.
        is_namespace = peek(module, "__path__") is not None and peek(module, "__file__") is None
        known = name in core.seen or name in core.early
        if not known and is_imported(name) and not is_namespace:
            core.reporter.found(findings.past_the_guard(name))
