"""Libraries of installed packages, opened before a module that would take others, or none."""

from __future__ import annotations

from cudaguard.errors import ImportOrderError, ImportOrderWarning
from cudaguard.hook.caller import caller_frame, describe
from cudaguard.policy.decide import applies
from cudaguard.probe.facts import Facts
from cudaguard.repairs import REPAIRING
from cudaguard.report import messages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from cudaguard.model import Rule
    from cudaguard.repairs import Engine


def preload_for(engine: Engine, rules: tuple[Rule, ...], spec: ModuleSpec) -> None:
    """Open what rules want opened before a module.

    Args:
        engine: Knows the mode, and is told what became of it.
        rules: Rules with the actions ``preload`` and ``preload_needs``.
        spec: The module.

    Raises:
        ImportOrderError: in `strict`, where the loader refuses a library.
    """
    from cudaguard.actions.preload import has_driver, preload, preload_needs

    if engine.mode not in REPAIRING:
        return
    for rule in rules:
        if rule.grade == "warn" or not applies(rule, Facts()):
            continue
        for action in rule.actions:
            verb, _, argument = action.partition(":")
            try:
                if verb == "preload":
                    opened = preload(argument)
                elif verb == "preload_needs" and has_driver():
                    # Without a driver a plug-in that cannot be loaded is the lesser evil: some
                    # crash as soon as they are.
                    opened = preload_needs(argument)
                else:
                    continue
            except OSError as error:
                _tell_refused(engine, rule, spec, error)
            else:
                _record(engine, rule, opened, spec)


def _record(engine: Engine, rule: Rule, opened: tuple[str, ...], spec: ModuleSpec) -> None:
    for file in opened:
        engine.journal.note("repair", f"{rule.id} preload {file}", describe(caller_frame()))
        engine.touched[f"{file}: loaded before {spec.name} by {rule.id} (stays)"] = None
        engine.log(messages.preloaded(rule, file, spec.name))


def _tell_refused(engine: Engine, rule: Rule, spec: ModuleSpec, error: OSError) -> None:
    finding = messages.not_preloaded(rule, spec.name, error)
    engine.tell(finding, ImportOrderWarning, frame=caller_frame())
    if engine.mode == "strict":
        raise ImportOrderError(finding.what, name=spec.name, path=spec.origin) from error
