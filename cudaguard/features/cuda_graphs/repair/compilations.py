"""Compiled callables that use CUDA graphs: made safe on request, or by rule when compiled."""

from __future__ import annotations

import functools
import sys

from cudaguard.core.caller import describe, frame_outside_of
from cudaguard.core.decide import applies
from cudaguard.core.passing_errors import error_passes
from cudaguard.core.patterns import actions_of
from cudaguard.core.repair import REPAIRING
from cudaguard.core.replace import Replaced, Switch
from cudaguard.errors import GraphWarning
from cudaguard.features.cuda_graphs import messages as wording
from cudaguard.features.cuda_graphs.repair.parked import Parked, owner_of
from cudaguard.features.cuda_graphs.repair.stale import Held
from cudaguard.features.cuda_graphs.repair.use import (
    place_in,
    remember,
    use_by_arguments,
    without_graphs,
)
from cudaguard.features.cuda_graphs.repair.wrap import protect_copies, wrap
from cudaguard.system.facts import Facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cudaguard.core.repair import Engine
    from cudaguard.model import Rule

PLACE = "torch.compile"
_VERBS = ("disable_cuda_graphs", "clone_outputs", "copy_held_outputs")  # with a target


class Reporter:
    """Tells of what a wrapper sees (see `cudaguard.features.cuda_graphs.repair.wrap`)."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def failed(self, error: RuntimeError) -> None:
        """Tell of an error of torch about an output that was overwritten."""
        error_passes(self._engine, error)

    def unknown(self, kind: type) -> None:
        """Tell of a class whose tensors are not copied."""
        finding = wording.not_copied(f"{kind.__module__}.{kind.__qualname__}")
        self._engine.tell(finding, GraphWarning, frame=frame_outside_of("torch"))

    def broken(self, error: Exception) -> None:
        """Tell that looking after a call has failed."""
        self._engine.broken("looking after the result of a compiled call", error)

    def here(self) -> str:
        """Return the program's line that is calling."""
        return describe(frame_outside_of("torch"))

    def parked(self, place: str, shape: tuple[int, ...], *, is_copied: bool) -> None:
        """Tell of a tensor that a call has left in a container."""
        finding = wording.parked(place, shape, is_copied=is_copied)
        if self._engine.tell(finding, GraphWarning, frame=frame_outside_of("torch")) and is_copied:
            self._engine.log(finding.what)

    def stale(self, made_at: str, shape: tuple[int, ...], overwritten_at: str) -> None:
        """Tell of a result that was overwritten while somebody holds it."""
        finding = wording.stale(made_at, shape, overwritten_at)
        self._engine.tell(finding, GraphWarning, frame=frame_outside_of("torch"))


def make_safe(
    engine: Engine, function: Any, *, copies: bool, parked: str | None = None, watch: bool = False
) -> Any:
    """Return a callable, or the same module, whose results are copied or looked at.

    Args:
        engine: Is told.
        function: A compiled function, method or module.
        copies: Hand out copies?
        parked: ``report`` tensors that calls leave in the containers of the module, ``copy``
            them, or None.
        watch: Look whether results that are held are overwritten?
    """
    listener = Reporter(engine)
    root = owner_of(function)
    looker = None
    if parked is not None and root is not None:
        is_copied = parked == "copy"
        looker = Parked(root, is_copied, functools.partial(listener.parked, is_copied=is_copied))
    wrapper: Callable[[Any], Any] = functools.partial(
        wrap,
        listener=listener,
        copies=copies,
        parked=looker,
        held=Held(listener.stale) if watch else None,
    )
    if isinstance(function, sys.modules["torch"].nn.Module):
        place = place_in(function)
        name = place or "forward"
        made = getattr(function, name)
        setattr(function, name, wrapper(getattr(made, "_cudaguard_of", made)))
        if not place:
            again = functools.partial(make_safe, engine, copies=copies, parked=parked, watch=watch)
            protect_copies(function, again)
        return function
    return wrapper(getattr(function, "_cudaguard_of", function))


# --- by rule, where torch.compile is called ---------------------------------------------------


def put_up(engine: Engine) -> None:
    """Have ``torch.compile`` seen, for the rules that are about what is compiled."""
    torch: Any = sys.modules.get("torch")
    original = getattr(torch, "compile", None)
    there = engine.replaced.get(PLACE)
    if original is None or (there is not None and there.is_in_place(torch)):
        return
    switch = Switch()

    @functools.wraps(original)
    def compile(model: Any = None, *args: Any, **keywords: Any) -> Any:
        is_on = switch.is_on and engine.mode != "off"
        if model is None or args or not is_on:  # without a model: torch comes back with one
            return original(model, *args, **keywords)
        return _compile(engine, original, model, keywords)

    engine.replace(PLACE, Replaced(torch, "compile", compile, switch))
    engine.journal.note("repair", f"{PLACE} is seen")


def _compile(engine: Engine, original: Any, model: Any, keywords: dict[str, Any]) -> Any:
    rule, verb, changed = None, "", keywords
    try:
        rule, verb = _rule_for(engine, model)
        uses_graphs = use_by_arguments(keywords).is_used is not False
        if rule is not None and verb == "disable_cuda_graphs" and uses_graphs:
            changed = _without(engine, rule, model, keywords)
    except Exception as error:
        engine.broken(f"looking at what {PLACE} is given", error)
    compiled = original(model, **changed)
    try:
        remember(compiled, changed)
        if rule is not None and verb in ("clone_outputs", "copy_held_outputs"):
            return _made_safe(engine, rule, verb, model, compiled)
    except Exception as error:
        engine.broken(f"looking at what {PLACE} has made", error)
    return compiled


def _made_safe(engine: Engine, rule: Rule, verb: str, model: Any, compiled: Any) -> Any:
    entry = f"{rule.id}: results of {_name_of(model)} are copied"
    engine.changes[f"{entry} (stays)"] = None
    engine.log(entry)
    parked = "copy" if verb == "copy_held_outputs" else "report"
    return make_safe(engine, compiled, copies=True, parked=parked)


def _without(engine: Engine, rule: Rule, model: Any, keywords: dict[str, Any]) -> dict[str, Any]:
    try:
        changed = without_graphs(keywords)
    except ValueError:
        return keywords
    where = describe(frame_outside_of("torch"))
    engine.log(f"{rule.id}: {_name_of(model)} is compiled without CUDA graphs, at {where}")
    engine.journal.note("repair", f"{rule.id} no CUDA graphs for {_name_of(model)}", where)
    return changed


def _rule_for(engine: Engine, model: Any) -> tuple[Rule | None, str]:
    names = _names_of(model)
    if engine.mode not in REPAIRING:
        return None, ""
    for rule in engine.registry.replacing:
        for verb in _VERBS:
            for action in actions_of(rule, verb):
                if action["target"] in names and applies(rule, Facts()):
                    return rule, verb
    return None, ""


def _names_of(model: Any) -> set[str]:
    """Return the names that a rule may call it by: its class and the bases, or the function."""
    owner = getattr(model, "__self__", model)
    if isinstance(owner, sys.modules["torch"].nn.Module):
        return {f"{kind.__module__}.{kind.__qualname__}" for kind in type(owner).__mro__}
    return {f"{getattr(model, '__module__', '')}.{getattr(model, '__qualname__', '')}"}


def _name_of(model: Any) -> str:
    owner = getattr(model, "__self__", model)
    named = owner if hasattr(owner, "__qualname__") else type(owner)
    return f"{named.__module__}.{named.__qualname__}"
