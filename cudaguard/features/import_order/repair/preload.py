"""Libraries of installed packages, opened before a module that would take others, or none."""

from __future__ import annotations

from cudaguard.core import messages
from cudaguard.core.caller import caller_frame, describe
from cudaguard.core.decide import applies
from cudaguard.core.patterns import values_of
from cudaguard.core.repair import REPAIRING
from cudaguard.errors import ImportOrderError, ImportOrderWarning
from cudaguard.system.facts import Facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from cudaguard.core.repair import Engine
    from cudaguard.model import Rule


def preload_for(engine: Engine, rules: tuple[Rule, ...], spec: ModuleSpec) -> None:
    """Open what rules want opened before a module; only tell of it where the mode says so.

    Args:
        engine: Knows the mode, and is told what became of it.
        rules: Rules with the actions ``preload_library`` and ``preload_dependencies``.
        spec: The module.

    Raises:
        ImportOrderError: in `strict`, where the loader refuses a library.
    """
    facts = Facts()
    for rule in rules:
        if not applies(rule, facts):
            continue
        files = _wanted(rule)
        if not files:
            continue
        if engine.mode in REPAIRING and rule.grade != "report":
            _open(engine, rule, files, spec)
        else:
            frame = caller_frame()
            finding = messages.left_to_chance(rule, spec.name, files, describe(frame))
            engine.tell(finding, ImportOrderWarning, frame=frame)


def came_too_late(rule: Rule) -> bool:
    """Is a library that the rule wants first not the one that is in the process?"""
    from cudaguard.system.preload import installed, is_mapped

    files = [file for pattern in values_of(rule, "preload_library") for file in installed(pattern)]
    return any(not is_mapped(file) for file in files) or bool(_needs(rule))


def _wanted(rule: Rule) -> tuple[str, ...]:
    from cudaguard.system.preload import not_mapped

    files = [file for pattern in values_of(rule, "preload_library") for file in not_mapped(pattern)]
    return tuple(dict.fromkeys((*files, *_needs(rule))))


def _needs(rule: Rule) -> tuple[str, ...]:
    from cudaguard.system.preload import has_driver, unmet_needs

    asking = values_of(rule, "preload_dependencies")
    # Without a driver a plug-in that cannot be loaded is the lesser evil: some crash when they are.
    if not asking or not has_driver():
        return ()
    return tuple(file for library in asking for file in unmet_needs(library))


def _open(engine: Engine, rule: Rule, files: tuple[str, ...], spec: ModuleSpec) -> None:
    from cudaguard.system.preload import open_all

    frame = caller_frame()
    opened, error = open_all(files)
    for file in opened:
        engine.journal.note("repair", f"{rule.id} preload_library {file}", describe(frame))
        engine.changes[f"{file}: loaded before {spec.name} by {rule.id} (stays)"] = None
        engine.log(messages.preloaded(rule, file, spec.name))
    if error is not None:
        finding = messages.not_preloaded(rule, spec.name, error)
        engine.tell(finding, ImportOrderWarning, frame=frame)
        if engine.mode == "strict":
            raise ImportOrderError(finding.what, name=spec.name, path=spec.origin) from error
