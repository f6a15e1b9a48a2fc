"""Import order: prerequisites before the modules that need them."""

from __future__ import annotations

import sys

from cudaguard.core import messages
from cudaguard.core.caller import caller_frame, describe
from cudaguard.core.decide import applies
from cudaguard.core.patterns import matches
from cudaguard.core.repair import CONTEXT, REPAIRING
from cudaguard.errors import ImportOrderError, ImportOrderWarning
from cudaguard.features.import_order.repair.imports import import_first, is_installed
from cudaguard.system.facts import Facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import FrameType

    from cudaguard.core.repair import Engine
    from cudaguard.model import Plan, Rule


def follow(engine: Engine, plan: Plan, spec: ModuleSpec) -> None:
    """Carry out the plan of one module: tell, then import what must come first.

    Raises:
        ImportOrderError: in `strict`, where the order cannot be kept.
    """
    frame = caller_frame()
    where = describe(frame)
    for problem in plan.problems:
        engine.tell(messages.contradiction(problem), ImportOrderWarning, frame=frame)
    for rule in plan.told:
        if rule.needs:
            for need in rule.needs:
                _tell_order(engine, rule, need, plan.name, frame)
        elif not rule.actions:
            finding = messages.known_fault(rule, plan.name, where)
            engine.tell(finding, ImportOrderWarning, frame=frame)
    if plan.problems and engine.mode == "strict":
        raise ImportOrderError("; ".join(plan.problems), name=spec.name, path=spec.origin)
    for need, id in plan.needs:
        if need == CONTEXT:
            from cudaguard.features.cuda_init.repair.creation import create_for_rule

            create_for_rule(engine, id, plan.name)
        elif engine.mode in REPAIRING:
            _import_first(engine, need, id, spec, frame)
        else:
            rule = next(rule for rule in engine.registry.rules if rule.id == id)
            _tell_order(engine, rule, need, plan.name, frame)


def _tell_order(
    engine: Engine, rule: Rule, need: str, target: str, frame: FrameType | None
) -> None:
    if need != CONTEXT and need not in sys.modules and is_installed(need):
        finding = messages.out_of_order(rule, need, target, describe(frame))
        engine.tell(finding, ImportOrderWarning, frame=frame)


def _import_first(
    engine: Engine, need: str, rule: str, spec: ModuleSpec, frame: FrameType | None
) -> None:
    absent = spec.name not in sys.modules
    outcome = import_first(need, rule)
    if outcome.state == "imported":
        engine.journal.note("prerequisite", need, describe(frame))
        engine.changes[f"{need}: imported before {spec.name} by {rule} (stays)"] = None
        engine.log(messages.imported_first(rule, need, spec.name))
    elif outcome.error is not None:
        finding = messages.prerequisite_failed(rule, need, spec.name, outcome.error)
        engine.tell(finding, ImportOrderWarning, frame=frame)
        if engine.mode == "strict":
            raise ImportOrderError(
                finding.what, name=spec.name, path=spec.origin
            ) from outcome.error
    if absent and spec.name in sys.modules:
        engine.tell(messages.cyclic_prerequisite(rule, need, spec.name), ImportOrderWarning)


def provide(
    engine: Engine,
    providing: list[tuple[str, Rule]],
    needed: tuple[str, ...],
    spec: ModuleSpec,
) -> None:
    """Import the module that brings a library which an extension is about to need.

    Args:
        engine: Knows the mode, and is told what became of it.
        providing: Pairs of (pattern of library names, rule whose first watched module has them).
        needed: The libraries that the extension names.
        spec: The extension.

    Raises:
        ImportOrderError: in `strict`, where the module cannot be imported.
    """
    frame = caller_frame()
    facts = Facts()
    for pattern, rule in providing:
        library = next((name for name in needed if matches(name, (pattern,))), None)
        provider = rule.watch[0]
        if library is None or provider in sys.modules or not applies(rule, facts):
            continue
        if engine.mode in REPAIRING and rule.grade != "report":
            _import_first(engine, provider, rule.id, spec, frame)
        elif is_installed(provider):
            finding = messages.not_provided(rule, spec.name, library, describe(frame))
            engine.tell(finding, ImportOrderWarning, frame=frame)


def is_told_of(engine: Engine, library: str) -> bool:
    """Has `provide` told that a library is missing, and done no more by the mode?"""
    facts = Facts()
    return engine.mode not in REPAIRING and any(
        matches(library, (pattern,))
        and rule.watch[0] not in sys.modules
        and applies(rule, facts)
        and is_installed(rule.watch[0])
        for pattern, rule in engine.registry.providing
    )
