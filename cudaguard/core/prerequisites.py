"""What must come before a watched module: planned across all rules, then imported in order.

A word among the needs of rules that is no module (``context``) is a prerequisite of a feature.
"""

from __future__ import annotations

import sys
from _thread import _local

from cudaguard.core import messages
from cudaguard.core.caller import caller_frame, describe
from cudaguard.core.decide import permit_for, plan
from cudaguard.core.reports import PREREQUISITE
from cudaguard.errors import ImportOrderError
from cudaguard.files.foreign import is_of_signal_handler
from cudaguard.model import Record
from cudaguard.system.facts import Facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import FrameType

    from cudaguard.core.dispatch import Dispatch
    from cudaguard.core.reports import Reporter
    from cudaguard.model import Plan, Rule

IMPORTS_FOR_THE_PROGRAM = True  # see `core.caller.importing`

# `names`: what this thread is importing as a prerequisite. An extension is in sys.modules only
# after it is mapped; until then this alone tells that it has been asked for.
_under_way = _local()


class Outcome(Record):
    """What became of one prerequisite.

    Args:
        module: The module that had to come first.
        rule: The rule that asked for it.
        state: ``imported``, ``present`` (already in ``sys.modules``, finished or not),
            ``absent`` (not installed) or ``failed``.
        error: What it raised, for ``failed``.
    """

    __slots__ = ("error", "module", "rule", "state")
    module: str
    rule: str
    state: str
    error: BaseException | None

    def __init__(
        self, module: str, rule: str, state: str, error: BaseException | None = None
    ) -> None:
        self._fill(module=module, rule=rule, state=state, error=error)


def import_first(module: str, rule: str) -> Outcome:
    """Import one prerequisite unless it is there.

    A module that another thread is still initializing is skipped as well: waiting for it is
    how ``_DeadlockError`` arises. ``KeyboardInterrupt`` and the like pass, and so does what the
    program's own handlers of signals raise.
    """
    names: set[str] = _under_way.__dict__.setdefault("names", set())
    if module in sys.modules or module in names:
        return Outcome(module, rule, "present")
    names.add(module)
    try:
        __import__(module)  # eager also where lazy imports are switched on
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing == module or module.startswith(missing + "."):
            return Outcome(module, rule, "absent")
        return Outcome(module, rule, "failed", error)  # one of its own dependencies is missing
    except (Exception, SystemExit) as error:
        if is_of_signal_handler(error):
            raise
        return Outcome(module, rule, "failed", error)
    finally:
        names.discard(module)
    return Outcome(module, rule, "imported")


def is_installed(module: str) -> bool:
    """Could the top-level package of `module` be imported? Imports nothing."""
    import importlib.util

    root = module.partition(".")[0]
    if root in sys.modules:
        return sys.modules[root] is not None
    try:
        return importlib.util.find_spec(root) is not None
    except Exception:  # a foreign finder may raise anything
        return False


def planned(core: Dispatch, name: str) -> Plan | None:
    """Return what must come before a module, None if there is nothing to do or to tell."""
    found = plan(name, core.registry.rules_of, core.registry.is_users, Facts())
    return found if found.needs or found.told or found.problems else None


def follow(core: Dispatch, plan: Plan, spec: ModuleSpec) -> None:
    """Carry out the plan of one module: tell, then import what must come first.

    Raises:
        ImportOrderError: in `strict`, where the order cannot be kept.
    """
    frame, reporter = caller_frame(), core.reporter
    for problem in plan.problems:
        stop = ImportOrderError("; ".join(plan.problems), name=spec.name, path=spec.origin)
        is_last = problem is plan.problems[-1]
        reporter.found(messages.contradiction(problem), frame, stop=stop if is_last else None)
    for rule in plan.told:
        for need in rule.needs:
            _tell_order(core, rule, need, plan.name, frame)
        if not rule.needs and not rule.actions:
            reporter.found(messages.known_fault(rule, plan.name, describe(frame)), frame)
    for need, id in plan.needs:
        named = core.registry.rule(id)
        if named is None:  # switched off by another thread meanwhile
            continue
        if not permit_for(reporter.mode, named.grade).acts:
            _tell_order(core, named, need, plan.name, frame)
        elif need in core.table.index.PREREQUISITES:
            core.table.resolve(core.table.index.PREREQUISITES[need])(core, id, plan.name)
        else:
            bring(reporter, need, id, spec.name, spec.origin, frame)


def bring(
    reporter: Reporter,
    need: str,
    rule: str,
    target: str,
    path: str | None,
    frame: FrameType | None,
) -> str:
    """Import a module that must come before another one, and tell what becomes of it.

    Args:
        reporter: Is told.
        need: The module.
        rule: Id of the rule that asks for it.
        target: What it must come before.
        path: The file of that.
        frame: The line of the program.

    Returns:
        See `Outcome.state`.

    Raises:
        ImportOrderError: in `strict`, where it cannot be imported.
    """
    absent = target not in sys.modules
    outcome = import_first(need, rule)
    if outcome.state == "imported":
        how = messages.imported_first(target)
        reporter.repaired(rule, PREREQUISITE, need, how, frame=frame)
    elif outcome.error is not None:
        finding = messages.prerequisite_failed(rule, need, target, outcome.error)
        stop = ImportOrderError(finding.what, name=target, path=path)
        stop.__cause__ = outcome.error
        reporter.found(finding, frame, stop=stop)
    if absent and target in sys.modules:
        reporter.found(messages.cyclic_prerequisite(rule, need, target))
    return outcome.state


def _tell_order(
    core: Dispatch, rule: Rule, need: str, target: str, frame: FrameType | None
) -> None:
    is_module = need not in core.table.index.PREREQUISITES
    if is_module and need not in sys.modules and is_installed(need):
        core.reporter.found(messages.out_of_order(rule, need, target, describe(frame)), frame)


def are_missing_before(core: Dispatch, rule: Rule, name: str) -> bool:
    """Should a module have come before one that is there, and has it not?"""
    order = [name for name in list(sys.modules) if sys.modules.get(name) is not None]
    earlier = set(order[: order.index(name)]) if name in order else set()
    return any(
        need not in earlier and is_installed(need)
        for need in rule.needs
        if need not in core.table.index.PREREQUISITES
    )
