"""What the guard could not act on: modules imported before it came, or past it."""

from __future__ import annotations

import sys

from cudaguard.errors import ImportOrderWarning, SymbolScopeWarning
from cudaguard.hook.caller import caller_frame
from cudaguard.hook.loader import is_imported
from cudaguard.repairs import CONTEXT, REPAIRING
from cudaguard.rules.patterns import arguments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.engine import Engine
    from cudaguard.model import Rule

_checked: set[tuple[str, str]] = set()  # pairs of module and rule: one look is enough


def report_late(engine: Engine, *, at_start: bool) -> None:
    """Report the rules that came too late, as their module had been imported already.

    Args:
        engine: The engine with its rules.
        at_start: Is this the start of the interpreter, before the program?
    """
    for name, rules in engine.registry.by_module.items():
        if is_imported(name) and name not in engine.seen:
            engine.early.add(name)
            for rule in rules:
                if (name, rule.id) not in _checked:
                    _checked.add((name, rule.id))
                    _look(engine, name, rule, at_start=at_start)


def _look(engine: Engine, name: str, rule: Rule, *, at_start: bool) -> None:
    from cudaguard.actions.imports import is_installed
    from cudaguard.policy.decide import applies
    from cudaguard.probe.facts import Facts
    from cudaguard.report import messages

    order = [name for name in list(sys.modules) if is_imported(name)]  # in the order of import
    earlier = set(order[: order.index(name)]) if name in order else set()
    scopes = bool(arguments(rule, "local_scope", "demote"))
    missed = scopes or any(
        need not in earlier and is_installed(need) for need in rule.needs if need != CONTEXT
    )
    if arguments(rule, "preload", "preload_needs"):
        from cudaguard.repairs.preload import came_too_late

        missed = missed or came_too_late(rule)
    only_told = rule.grade == "warn" and not rule.needs and not rule.actions
    if not (missed or only_told) or not applies(rule, Facts()):
        return
    if arguments(rule, "demote") and engine.mode in REPAIRING and rule.grade != "warn":
        from cudaguard.repairs.scope import take_back

        take_back(engine, rule, module=name, at_start=at_start)
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
            from cudaguard.report import messages

            engine.tell(messages.past_the_guard(name), ImportOrderWarning)
