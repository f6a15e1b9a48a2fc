"""What is put in place before an import: defaults of variables, another module for this one."""

from __future__ import annotations

import sys

from cudaguard.core import messages
from cudaguard.core.caller import caller_frame, describe
from cudaguard.core.decide import applies
from cudaguard.core.patterns import actions_of, values_of
from cudaguard.core.repair import REPAIRING
from cudaguard.errors import ImportOrderWarning
from cudaguard.features.import_order.repair.imports import import_first
from cudaguard.files.calls import os
from cudaguard.system.facts import Facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from cudaguard.core.repair import Engine
    from cudaguard.model import Rule


def set_defaults(engine: Engine, rules: tuple[Rule, ...], spec: ModuleSpec) -> None:
    """Set the variables that rules want set before a module, where the program has not.

    Args:
        engine: Knows the mode, and is told.
        rules: Rules with the action ``set_env``.
        spec: The module.
    """
    for rule in rules:
        for name, value in missing_defaults(rule):
            if engine.mode in REPAIRING and rule.grade != "report":
                os.environ[name] = value
                where = describe(caller_frame())
                engine.journal.note("repair", f"{rule.id} set_env {name}={value}", where)
                engine.changes[f"{name}={value}: set before {spec.name} by {rule.id} (stays)"] = (
                    None
                )
                engine.log(messages.default_set(rule, name, value, spec.name))
            else:
                frame = caller_frame()
                finding = messages.default_missing(rule, name, value, spec.name, describe(frame))
                engine.tell(finding, ImportOrderWarning, frame=frame)


def missing_defaults(rule: Rule) -> list[tuple[str, str]]:
    """Return the variables that the rule has a default for and that are not set."""
    if not applies(rule, Facts()):
        return []
    defaults = [(action["set_env"], action["value"]) for action in actions_of(rule, "set_env")]
    return [(name, value) for name, value in defaults if name not in os.environ]


def substitute(engine: Engine, rules: tuple[Rule, ...], spec: ModuleSpec) -> None:
    """Publish another module under the name of the one that is about to be imported.

    Args:
        engine: Knows the mode, and is told.
        rules: Rules with the action ``replace_module``.
        spec: The module.
    """
    if engine.mode not in REPAIRING or spec.name in sys.modules:
        return
    for rule in rules:
        if spec.name not in rule.watch or not applies(rule, Facts()):
            continue
        for other in values_of(rule, "replace_module"):
            outcome = import_first(other, rule.id)
            module = sys.modules.get(other)
            if outcome.error is not None:
                finding = messages.prerequisite_failed(rule.id, other, spec.name, outcome.error)
                engine.tell(finding, ImportOrderWarning, frame=caller_frame())
            elif module is not None:
                # The loader finds it there and runs nothing.
                sys.modules[spec.name] = module
                where = describe(caller_frame())
                engine.journal.note("repair", f"{rule.id} replace_module {other}", where)
                engine.changes[f"{spec.name}: is {other} by {rule.id} (stays)"] = None
                engine.log(messages.substituted(rule, other, spec.name))
                return
