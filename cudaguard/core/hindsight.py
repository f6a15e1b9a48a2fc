"""What the guard could not act on: modules imported before it came, or past it."""

from __future__ import annotations

import sys

from cudaguard.core.caller import caller_frame
from cudaguard.core.loader import is_imported
from cudaguard.core.patterns import actions_of
from cudaguard.core.repair import CONTEXT, REPAIRING
from cudaguard.errors import ImportOrderWarning, SymbolScopeWarning

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.core.engine import Engine
    from cudaguard.model import Rule

# Module, rule, and whether repairs were allowed: one look is enough.
_checked: set[tuple[str, str, bool]] = set()


def report_late(engine: Engine, *, at_start: bool) -> None:
    """Report the rules that came too late, as their module had been imported already.

    Args:
        engine: The engine with its rules.
        at_start: Is this the start of the interpreter, before the program?
    """
    repairs, before = engine.mode in REPAIRING, len(engine.changes)
    for name, rules in engine.registry.by_module.items():
        if not is_imported(name):
            continue
        is_late = name not in engine.seen
        if is_late:
            engine.early.add(name)
        for rule in rules:
            # What was only told of while the mode forbade repairs can be taken back now.
            may_act = repairs and bool(actions_of(rule, "hide_symbols"))
            if (is_late or may_act) and (name, rule.id, may_act) not in _checked:
                _checked.add((name, rule.id, may_act))
                _look(engine, name, rule, at_start=at_start)
    if repairs and len(engine.changes) > before:
        _take_back_what_surfaced(engine)


def _take_back_what_surfaced(engine: Engine) -> None:
    """Demote again: a library that was hidden may have stood before one of another rule."""
    from cudaguard.core.decide import applies
    from cudaguard.features.symbol_scope.repair.scope import take_back
    from cudaguard.system.facts import Facts

    facts = Facts()
    rules = {rule.id: rule for _, rule in engine.registry.demoting}.values()
    for rule in rules:
        names = [name for name in rule.watch if is_imported(name)]
        if names and rule.grade != "report" and applies(rule, facts):
            take_back(engine, rule, module=names[0], is_late=True)


def _look(engine: Engine, name: str, rule: Rule, *, at_start: bool) -> None:
    from cudaguard.core import messages
    from cudaguard.core.decide import applies
    from cudaguard.features.import_order.repair.imports import is_installed
    from cudaguard.system.facts import Facts

    order = [name for name in list(sys.modules) if is_imported(name)]  # in the order of import
    earlier = set(order[: order.index(name)]) if name in order else set()
    scopes = bool(actions_of(rule, "load_local", "hide_symbols"))
    missed = scopes or any(
        need not in earlier and is_installed(need) for need in rule.needs if need != CONTEXT
    )
    if actions_of(rule, "preload_library", "preload_dependencies"):
        from cudaguard.features.import_order.repair.preload import came_too_late

        missed = missed or came_too_late(rule)
    only_told = rule.grade == "report" and not rule.needs and not rule.actions
    if not (missed or only_told) or not applies(rule, Facts()):
        return
    if actions_of(rule, "hide_symbols") and engine.mode in REPAIRING and rule.grade != "report":
        from cudaguard.features.symbol_scope.repair.scope import take_back

        take_back(engine, rule, module=name, is_late=True, at_start=at_start)
        return
    if only_told:  # it would have changed nothing to come earlier
        engine.tell(messages.known_fault(rule, name, ""), ImportOrderWarning)
        return
    finding = messages.too_late(rule, name, at_start=at_start)
    category = SymbolScopeWarning if scopes else ImportOrderWarning
    if engine.tell(finding, category, frame=caller_frame()) and engine.mode == "strict":
        engine.deferred.append(finding.what)


def record_bypassed(engine: Engine) -> None:
    """Record the watched modules that were imported and never came through the hook."""
    for name in engine.registry.by_module:
        known = name in engine.seen or name in engine.early
        if not known and is_imported(name):
            from cudaguard.core import messages

            engine.tell(messages.past_the_guard(name), ImportOrderWarning)
