"""Symbol scope: keep names local, take them back, shield an extension from them."""

from __future__ import annotations

import sys

from cudaguard.core import messages
from cudaguard.core.caller import caller_frame, describe
from cudaguard.core.decide import applies
from cudaguard.core.patterns import actions_of
from cudaguard.core.repair import REPAIRING
from cudaguard.errors import ImportOrderError, SymbolScopeWarning
from cudaguard.features.symbol_scope.facts import runtime_in
from cudaguard.features.symbol_scope.messages import scope as wording
from cudaguard.files.calls import os
from cudaguard.system.facts import Facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import FrameType

    from cudaguard.core.repair import Engine
    from cudaguard.model import Rule


def scope_of(
    engine: Engine, rules: tuple[Rule, ...], subject: str, source: str, runtime: str = ""
) -> tuple[bool, Callable[[], None]] | None:
    """Decide about something that is about to be loaded with RTLD_GLOBAL.

    Args:
        engine: Knows the mode, and is told what became of it.
        rules: The rules that name it.
        subject: What it is called in a message: a library, or the extensions of a package.
        source: The library's path, or the module that asks for the global scope.
        runtime: The file that comes with it and has its own C++ runtime, if any.

    Returns:
        None if no rule applies here; otherwise whether it has to stay local, and what to call
        once it is loaded: only then has anything happened that can be told.
    """
    facts = Facts()
    rule = next((rule for rule in rules if applies(rule, facts)), None)
    if rule is None:
        return None
    frame = caller_frame()
    if runtime:
        return False, lambda: _tell_left(engine, rule, subject, runtime, frame)
    stays_local = engine.mode in REPAIRING and rule.grade != "report"
    return stays_local, lambda: _loaded(engine, rule, subject, source, stays_local, frame)


def leave_global(engine: Engine, rules: tuple[Rule, ...], spec: ModuleSpec) -> None:
    """Map an extension with RTLD_GLOBAL, as asked for, if local scope would break it.

    Args:
        engine: Is told.
        rules: The rules that have taken RTLD_GLOBAL from the flags in force.
        spec: The extension.
    """
    path, facts = os.path.abspath(spec.origin or ""), Facts()
    rule = next((rule for rule in rules if applies(rule, facts)), None)
    runtime = runtime_in(path)
    if rule is None or not runtime:
        return
    import _ctypes

    try:
        _ctypes.dlopen(path, sys.getdlopenflags() | os.RTLD_GLOBAL)
    except OSError:  # the import itself will say so
        return
    _tell_left(engine, rule, spec.name, runtime, caller_frame())


def _tell_left(
    engine: Engine, rule: Rule, subject: str, runtime: str, frame: FrameType | None
) -> None:
    finding = wording.left_global(rule, subject, runtime, describe(frame))
    if engine.tell(finding, SymbolScopeWarning, frame=frame) and engine.mode == "strict":
        engine.deferred.append(finding.what)


def _loaded(
    engine: Engine,
    rule: Rule,
    subject: str,
    source: str,
    stayed_local: bool,
    frame: FrameType | None,
) -> None:
    where = describe(frame)
    if not stayed_local:
        finding = wording.went_global(rule, subject, source, where)
        engine.tell(finding, SymbolScopeWarning, frame=frame)
        return
    engine.journal.note("repair", f"{rule.id} load_local {subject}", where)
    engine.changes[f"{subject}: kept in local symbol scope by {rule.id} (stays)"] = None
    engine.log(wording.kept_local(rule, source, where))


def tell_unsupported(engine: Engine, spec: ModuleSpec) -> None:
    """Say which repairs of a module this platform has no means for."""
    from cudaguard.core.verbs import toml_text

    facts = Facts()
    for rule in engine.registry.by_module.get(spec.name, ()):
        if rule.actions and applies(rule, facts):
            for action in rule.actions:
                engine.tell(messages.unsupported(rule, toml_text(action)), SymbolScopeWarning)


def take_back(
    engine: Engine, rule: Rule, *, module: str, is_late: bool = False, at_start: bool = False
) -> bool:
    """Demote the libraries that a rule names, if they are global, and tell what became of it.

    Args:
        engine: Knows the mode, and is told.
        rule: A rule with the action ``hide_symbols`` that applies here.
        module: The module that brought the libraries.
        is_late: Was the module imported before the rule was in force?
        at_start: Is this the start of the interpreter, before the program?

    Returns:
        False if a fault is left: refused, failed, or others are bound to the library already.
    """
    from cudaguard.features.symbol_scope.repair.demotion import demote

    engine.wanted_back.discard(rule.id)
    done = demote(rule, Facts().machine)
    if done.state in ("absent", "local"):
        return True
    frame = caller_frame()
    where = describe(frame)
    if done.state == "done":
        engine.journal.note("repair", f"{rule.id} hide_symbols {done.library}", where)
        engine.changes[wording.hidden(rule, done) + " (stays)"] = None
        engine.log(f"{wording.hidden(rule, done)}; to switch this off: "
                   f"{messages.switch_off(rule.id)}")  # fmt: skip
        if not done.bound:
            return True
    if is_late:
        finding = wording.taken_back_late(rule, module, done, at_start=at_start)
    else:
        finding = wording.not_taken_back(rule, module, done)
    if engine.tell(finding, SymbolScopeWarning, frame=frame) and engine.mode == "strict":
        engine.deferred.append(finding.what)
    return False


def take_back_after(engine: Engine, rules: tuple[Rule, ...], module: str) -> None:
    """Demote what the import of a module has brought, whether it succeeded or not.

    Args:
        engine: Knows the mode, and is told.
        rules: Rules with the action ``hide_symbols`` that watch the module.
        module: Its name.
    """
    for rule in rules:
        # A rule that keeps its libraries local has nothing to do here, unless names were seen to
        # come past it.
        idle = actions_of(rule, "load_local") and rule.id not in engine.wanted_back
        if (
            not idle
            and engine.mode in REPAIRING
            and rule.grade != "report"
            and applies(rule, Facts())
        ):
            take_back(engine, rule, module=module)


def shield_extension(engine: Engine, rule: Rule, spec: ModuleSpec) -> None:
    """Have an extension that is about to be mapped find its own names first.

    Args:
        engine: Knows the mode, and is told what became of it.
        rule: A rule with the action ``load_deepbind`` for this extension.
        spec: The extension.

    Raises:
        ImportOrderError: in `strict`, where it has to be refused.
    """
    if engine.mode not in REPAIRING or not applies(rule, Facts()) or spec.origin is None:
        return
    from cudaguard.features.symbol_scope.repair.shield import shield

    frame = caller_frame()
    reason = shield(spec.origin)
    if reason:
        finding = wording.not_shielded(rule, spec.name, reason)
        engine.tell(finding, SymbolScopeWarning, frame=frame)
        if engine.mode == "strict":
            raise ImportOrderError(finding.what, name=spec.name, path=spec.origin)
        return
    engine.journal.note("repair", f"{rule.id} load_deepbind {spec.name}", describe(frame))
    engine.changes[f"{spec.name}: loaded with RTLD_DEEPBIND by {rule.id} (stays)"] = None
    engine.log(wording.shielded(rule, spec.name))
