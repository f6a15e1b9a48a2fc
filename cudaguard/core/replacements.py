"""Attributes of modules that rules name: replaced once the module is imported."""

from __future__ import annotations

import sys

from cudaguard.core.caller import caller_frame
from cudaguard.core.decide import applies
from cudaguard.core.loader import is_imported, is_under_way
from cudaguard.core.patterns import actions_of
from cudaguard.core.repair import REPAIRING
from cudaguard.errors import ArrayInterfaceWarning
from cudaguard.features.array_interface import messages as wording
from cudaguard.features.array_interface.repair import entries
from cudaguard.features.gpu_architectures.messages.architectures import fusers_off
from cudaguard.features.gpu_architectures.repair.fusers import FusersOff
from cudaguard.system.facts import Facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cudaguard.core.repair import Engine
    from cudaguard.model import Rule

_OF_GRAPHS = ("record_compile_args", "disable_cuda_graphs", "clone_outputs", "copy_held_outputs")


def put_up_where_imported(engine: Engine) -> None:
    """Put up what rules want for modules that are there already: it is not too late for that."""
    for rule in engine.registry.replacing:
        for module in rule.watch:
            if is_imported(module) and not is_under_way(module):
                put_up(engine, (rule,), module)


def put_up(engine: Engine, rules: tuple[Rule, ...], module: str) -> None:
    """Replace the attributes that rules name in a module.

    Args:
        engine: Knows the mode, and is told.
        rules: Rules with actions whose verbs are in `registry.REPLACING`.
        module: The module, imported.
    """
    for rule in rules:
        if rule.grade == "report" or module not in rule.watch or not applies(rule, Facts()):
            continue
        for action in actions_of(rule, *_OF_GRAPHS):
            _put_up_for_graphs(engine, rule, module, action)
        if actions_of(rule, "disable_fusers"):
            _switch_fusers_off(engine, rule, module)
        if actions_of(rule, "prepare_builds", "break_stale_locks"):
            from cudaguard.features.builds.repair.builds import put_up as see_builds

            see_builds(engine, rule, module)
        for verb in ("normalize_argument", "fix_array_interface"):
            for action in actions_of(rule, verb):
                _put(engine, rule, module, verb, action)


def _put_up_for_graphs(engine: Engine, rule: Rule, module: str, action: Mapping[str, Any]) -> None:
    if action.get("target") == "*":
        from cudaguard.features.cuda_graphs.repair.setting import put_up as clone_generations

        clone_generations(engine, rule, module)
    else:
        from cudaguard.features.cuda_graphs.repair.compilations import put_up as see_compilations

        see_compilations(engine)


def _switch_fusers_off(engine: Engine, rule: Rule, module: str) -> None:
    core = getattr(sys.modules[module], "_C", None)
    place = f"{module}._C: fusers of TorchScript for GPUs are off"
    there = engine.replaced.get(place)
    if engine.mode not in REPAIRING or core is None:
        return
    if there is not None and there.is_in_place(core):
        return
    engine.replace(place, FusersOff(core))
    engine.journal.note("repair", f"{rule.id} disable_fusers {module}")
    engine.log(fusers_off(rule.id))


def _put(engine: Engine, rule: Rule, module: str, verb: str, action: Mapping[str, Any]) -> None:
    from cudaguard.features.array_interface.repair.arguments import put_before, put_behind

    path = action[verb]
    place = f"{module}.{path}"
    there = engine.replaced.get(place)
    try:
        if there is not None:
            if there.is_in_place(entries.owner_of(module, path, verb)):
                return
            there.undo()  # the module was loaded anew
        if verb == "normalize_argument":
            made = put_before(engine, rule, module, path, action["parameter"])
        else:
            made = put_behind(engine, rule, module, path)
        engine.replace(place, made)
    except (AttributeError, ImportError, KeyError, TypeError) as error:
        finding = wording.no_such_entry(rule.id, place, error)
        engine.tell(finding, ArrayInterfaceWarning, frame=caller_frame())
    else:
        engine.journal.note("repair", f"{rule.id} {verb} {place}")
