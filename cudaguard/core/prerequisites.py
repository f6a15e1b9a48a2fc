"""Prerequisites of a watched module: planned across all rules, then imported in order.

A word among the needs of rules that is no module (``context``) is a prerequisite of a feature.
"""

from __future__ import annotations

import sys
from _thread import _local

from cudaguard.core import findings
from cudaguard.core.decide import applies, plan
from cudaguard.core.reports import LATER, PREREQUISITE
from cudaguard.core.rule import permit_for
from cudaguard.errors import ImportOrderError
from cudaguard.files import program_errors
from cudaguard.hooks.caller import caller_frame, describe
from cudaguard.hooks.loader import is_imported
from cudaguard.model import TYPE_CHECKING
from cudaguard.system import peek
from cudaguard.system.facts import Facts

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import FrameType
    from typing import Any

    from cudaguard.core.decide import Plan
    from cudaguard.core.registry import RuleEntry
    from cudaguard.core.rule import Rule
    from cudaguard.core.table import FeatureTable

IMPORTS_FOR_THE_PROGRAM = True  # see `hooks.caller.importing`

# `names`: what this thread is importing as a prerequisite. An extension is in sys.modules only
# after it is mapped; until then this alone tells that it has been asked for.
_importing = _local()


def import_first(module: str) -> bool | BaseException:
    """Import a module unless it is there; return whether it was imported now, or what it raised.

    False for one that is not installed, and for one that another thread is still initializing:
    waiting for it is how ``_DeadlockError`` arises. ``KeyboardInterrupt`` and the like pass, and so
    does what the program's own handlers of signals raise.
    """
    names: set[str] = _importing.__dict__.setdefault("names", set())
    if module in sys.modules or module in names:
        return False
    names.add(module)
    try:
        __import__(module)  # eager also where lazy imports are switched on
    except ModuleNotFoundError as error:
        missing = error.name or ""
        # Otherwise one of its own dependencies is missing.
        is_absent = missing == module or module.startswith(missing + ".")
        return False if is_absent else error
    except program_errors(Exception, SystemExit) as error:
        return error
    finally:
        names.discard(module)
    return True


def is_installed(module: str) -> bool:
    """Return True if the top-level package of `module` can be imported; nothing is."""
    import importlib.util

    root = module.partition(".")[0]
    if root in sys.modules:
        return sys.modules[root] is not None
    try:
        return importlib.util.find_spec(root) is not None
    except program_errors(Exception):  # a foreign finder may raise anything
        return False


class Prerequisites:
    """Brings what must come first, by the rules that are in force when it is made."""

    def __init__(self, core: Any, table: FeatureTable) -> None:
        self._core, self._registry, self._reporter = core, core.registry, core.reporter
        self._table, self._words = table, table.index.PREREQUISITES
        self._activated: dict[str, Rule] = {}

    def before(self, name: str) -> list[Callable[[ModuleSpec], None]]:
        """Return what is to be called before a module is imported."""
        self._activated = self._wake(name)
        found = plan(name, self._rules_of, self._registry.is_users, Facts())
        return [lambda spec: self._follow(name, found, spec)] if any(found) else []

    def _wake(self, name: str) -> dict[str, Rule]:
        """Return the rules that are off and whose needs the program will import all the same.

        Where it is not certain, or would come too early, the program is told.
        """
        entries: dict[str, RuleEntry] = {}
        todo = [name]
        for module in todo:  # what a rule needs may need something, too
            for entry in self._registry.opt_in_orders.get(module, ()):
                if entry.id not in entries and applies(entry.rule, Facts()):
                    entries[entry.id] = entry
                    todo += entry.needs
        missing = {
            id: frozenset(need for need in entry.needs if need not in sys.modules)
            for id, entry in entries.items()
        }
        wanted = frozenset(filter(is_installed, frozenset().union(*missing.values())))
        if not wanted:
            return {}

        from cudaguard.core.import_plan import upcoming

        certain, likely = upcoming(wanted, name)
        activated = {
            id: entries[id].rule for id, needs in missing.items() if needs and needs <= certain
        }
        for entry in self._registry.opt_in_orders.get(name, ()):
            needs = missing.get(entry.id, frozenset())
            if entry.id not in activated and needs <= certain | likely.keys():
                for need in needs:
                    self._tell_order(entry.rule, need, name, caller_frame(), likely.get(need, ""))
        return activated

    def _rules_of(self, name: str) -> tuple[Rule, ...]:
        orders = self._registry.opt_in_orders.get(name, ())
        activated = (self._activated[order.id] for order in orders if order.id in self._activated)
        return (*self._registry.rules_of(name), *activated)

    def _follow(self, watched: str, plan: Plan, spec: ModuleSpec) -> None:
        """Carry out the plan of one module: tell, then import what must come first.

        Raises:
            ImportOrderError: in `strict`, where the order cannot be kept.
        """
        frame, reporter = caller_frame(), self._reporter
        for problem in plan.problems:
            stop = ImportOrderError("; ".join(plan.problems), name=spec.name, path=spec.origin)
            is_last = problem is plan.problems[-1]
            reporter.found(findings.contradiction(problem), frame, stop=stop if is_last else None)
        for rule in plan.reported:
            for need in rule.needs:
                self._tell_order(rule, need, watched, frame)
            if not rule.needs and not rule.actions:
                finding = findings.known_fault(rule, watched, describe(frame), Facts())
                reporter.found(finding, frame, about=watched if finding.command else "")
        for need, id in plan.needs:
            named = self._registry.rule(id) or self._activated.get(id)
            if named is None:  # switched off by another thread meanwhile
                continue
            if not permit_for(reporter.mode, named.grade).acts:
                self._tell_order(named, need, watched, frame)
            elif need in self._words:
                self._table.resolve(self._words[need])(self._core, id, watched)
            else:
                self._bring(need, id, spec, frame)

    def _bring(self, need: str, rule: str, spec: ModuleSpec, frame: FrameType | None) -> None:
        """Import a module that must come before another one, and tell what becomes of it."""
        target, reporter, outcome = spec.name, self._reporter, import_first(need)
        if isinstance(outcome, BaseException):
            finding = findings.prerequisite_failed(rule, need, target, outcome)
            stop = ImportOrderError(finding.as_error(), name=target, path=spec.origin)
            stop.__cause__ = outcome
            reporter.found(finding, frame, stop=stop)
        elif outcome:
            reporter.repaired(rule, PREREQUISITE, need, f"imported before {target}", frame=frame)

    def _tell_order(
        self, rule: Rule, need: str, target: str, frame: FrameType | None, follows: str = ""
    ) -> None:
        if need not in self._words and need not in sys.modules and is_installed(need):
            finding = findings.out_of_order(rule, need, target, describe(frame), follows)
            self._reporter.found(finding, frame)

    def missing_before(self, rule: Rule, name: str) -> list[str]:
        """Return the modules that should have come before one that is there, and have not."""
        order = [name for name in list(sys.modules) if sys.modules.get(name) is not None]
        earlier = set(order[: order.index(name)]) if name in order else set()
        return [
            need
            for need in rule.needs
            if need not in self._words and need not in earlier and is_installed(need)
        ]


# --- What came too early, or past the guard -------------------------------------------------------

_reported: set[tuple[str, str]] = set()  # module and rule: one look is enough


def check_already_imported(core: Any, *, at_start: bool) -> None:
    """Do what can be done for modules that are there, and report the rules that came too late."""
    core.repairs.after_all()
    done = 0
    for name, entries in list(core.registry.by_module.items()):
        if not is_imported(name):
            continue
        if is_late := name not in core.seen:
            core.early.add(name)
        for entry in entries:
            is_missed, number = core.repairs.late(name, entry, is_late=is_late)
            done += number
            if is_late and (name, entry.id) not in _reported:
                _reported.add((name, entry.id))
                _tell_late(core, name, entry, is_missed=is_missed, at_start=at_start)
    if done:
        core.repairs.again()


def _tell_late(core: Any, name: str, entry: RuleEntry, *, is_missed: bool, at_start: bool) -> None:
    is_report_only = entry.grade == "report" and not entry.needs and not entry.does
    if not is_report_only and not (entry.needs or is_missed):
        return
    rule = entry.rule
    if not applies(rule, Facts()):
        return
    if is_report_only:  # it would have changed nothing to come earlier
        core.reporter.found(findings.known_fault(rule, name, "", Facts()))
        return
    missing = core.prerequisites().missing_before(rule, name)
    if rule.grade == "report" and not is_missed:  # nor would it have repaired anything in time
        for need in missing:
            core.reporter.found(findings.out_of_order(rule, need, name, ""), caller_frame())
    elif is_missed or missing:
        verbs = core.repairs.table.index.VERBS
        verb = next((verb for verb, _ in entry.does if "late" in verbs[verb]), "")
        finding = findings.too_late(rule, name, at_start=at_start)
        core.reporter.found(finding, caller_frame(), stop=LATER, verb=verb)


def record_bypassed(core: Any) -> None:
    """Record the watched modules that were imported and never came through the hook."""
    for name in core.registry.by_module:
        module = sys.modules.get(name)
        # A package without code of its own is loaded by no loader of a file.
        is_namespace = peek(module, "__path__") is not None and peek(module, "__file__") is None
        known = name in core.seen or name in core.early
        if not known and is_imported(name) and not is_namespace:
            core.reporter.found(findings.past_the_guard(name))
