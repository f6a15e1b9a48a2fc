"""Compiled callables that use CUDA graphs: made safe on request, or by rule when compiled."""

from __future__ import annotations

import functools
import sys

from cudaguard.core.caller import describe, frame_outside_of
from cudaguard.core.decide import applies
from cudaguard.core.passing_errors import error_passes
from cudaguard.core.patterns import actions_of
from cudaguard.core.replace import Replaced
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
from cudaguard.files import ours
from cudaguard.system.facts import Facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from cudaguard.core.replace import ReplacedPlace
    from cudaguard.core.reports import Reporter
    from cudaguard.core.request import Outcome, Request
    from cudaguard.model import Rule

PLACE = "torch.compile"


class CompiledCalls:
    """Tells of what a wrapper sees (see `cudaguard.features.cuda_graphs.repair.wrap`)."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def failed(self, error: RuntimeError) -> None:
        """Tell of an error of torch about an output that was overwritten."""
        error_passes(self._reporter, error)

    def unknown(self, kind: type) -> None:
        """Tell of a class whose tensors are not copied."""
        finding = wording.not_copied(f"{kind.__module__}.{kind.__qualname__}")
        self._reporter.found(finding, frame_outside_of("torch"))

    def broken(self, error: Exception) -> None:
        """Tell that looking after a call has failed."""
        self._reporter.broken("looking after the result of a compiled call", error)

    def here(self) -> str:
        """Return the program's line that is calling."""
        return describe(frame_outside_of("torch"))

    def parked(self, place: str, shape: tuple[int, ...], *, is_copied: bool) -> None:
        """Tell of a tensor that a call has left in a container."""
        finding = wording.parked(place, shape, is_copied=is_copied)
        if self._reporter.found(finding, frame_outside_of("torch")) and is_copied:
            self._reporter.log(finding.what)

    def moves(self, place: str, shape: tuple[int, ...]) -> None:
        """Tell of a stored tensor that gets a new address at every call."""
        finding = wording.moves(place, shape)
        if self._reporter.found(finding, frame_outside_of("torch")):
            self._reporter.log(finding.what)

    def stale(self, made_at: str, shape: tuple[int, ...], overwritten_at: str) -> None:
        """Tell of a result that was overwritten while somebody holds it."""
        finding = wording.stale(made_at, shape, overwritten_at)
        self._reporter.found(finding, frame_outside_of("torch"))


def make_safe(
    reporter: Reporter,
    function: Any,
    *,
    copies: bool,
    parked: str | None = None,
    watch: bool = False,
) -> Any:
    """Return a callable, or the same module, whose results are copied or looked at.

    Args:
        reporter: Is told.
        function: A compiled function, method or module.
        copies: True to hand out copies.
        parked: ``report`` tensors that calls leave in the containers of the module, ``copy``
            them, or None.
        watch: True to look whether results that are held are overwritten.
    """
    listener = CompiledCalls(reporter)
    root = owner_of(function)
    looker = None
    if parked is not None and root is not None:
        is_copied = parked == "copy"
        tell = functools.partial(listener.parked, is_copied=is_copied)
        looker = Parked(root, is_copied, tell, listener.moves)
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
            again = functools.partial(
                make_safe, reporter, copies=copies, parked=parked, watch=watch
            )
            protect_copies(function, again)
        return function
    return wrapper(getattr(function, "_cudaguard_of", function))


# --- by rule, where torch.compile is called ---------------------------------------------------

_STRATEGIES = ("disable_cuda_graphs", "clone_outputs", "copy_held_outputs")


def put_up(request: Request) -> Iterator[Outcome]:
    """Have ``torch.compile`` seen, for the rules that are about what is compiled."""
    if all(action.get("target") == "*" for action in request.rule.actions):
        from cudaguard.features.cuda_graphs.repair.setting import put_up as clone_generations

        yield from clone_generations(request)
        return
    torch: Any = sys.modules.get("torch")
    original = getattr(torch, "compile", None)
    if original is None:
        return

    def make(place: ReplacedPlace, _: object) -> Replaced:
        @functools.wraps(original)
        def compile(model: Any = None, *args: Any, **keywords: Any) -> Any:
            looking = [rule for rule, permit in list(place.users) if permit.looks]
            if model is None or args or not looking:  # without a model: torch comes back with one
                return original(model, *args, **keywords)
            return _compile(request.reporter, place, original, model, keywords)

        return Replaced(torch, "compile", compile)

    request.put(PLACE, torch, make)


def _compile(
    reporter: Reporter, place: ReplacedPlace, original: Any, model: Any, keywords: dict[str, Any]
) -> Any:
    rule, strategy, changed = None, "", keywords
    try:
        rule, strategy = _rule_for(place, model)
        uses_graphs = use_by_arguments(keywords).is_used is not False
        if rule is not None and strategy == "disable_cuda_graphs" and uses_graphs:
            changed = _without(reporter, rule, model, keywords)
    except ours(Exception) as error:
        reporter.broken(f"looking at what {PLACE} is given", error)
    compiled = original(model, **changed)
    try:
        remember(compiled, changed)
        if rule is not None and strategy != "disable_cuda_graphs":
            return _made_safe(reporter, rule, strategy, model, compiled)
    except ours(Exception) as error:
        reporter.broken(f"looking at what {PLACE} has made", error)
    return compiled


def _made_safe(reporter: Reporter, rule: Rule, strategy: str, model: Any, compiled: Any) -> Any:
    how, frame = wording.COPIED, frame_outside_of("torch")
    reporter.repaired(rule.id, strategy, f"results of {_name_of(model)}", how, frame=frame)
    parked = "copy" if strategy == "copy_held_outputs" else "report"
    return make_safe(reporter, compiled, copies=True, parked=parked)


def _without(
    reporter: Reporter, rule: Rule, model: Any, keywords: dict[str, Any]
) -> dict[str, Any]:
    try:
        changed = without_graphs(keywords)
    except ValueError:
        return keywords
    verb, frame = "disable_cuda_graphs", frame_outside_of("torch")
    reporter.repaired(rule.id, verb, _name_of(model), wording.WITHOUT_GRAPHS, frame=frame)
    return changed


def _rule_for(place: ReplacedPlace, model: Any) -> tuple[Rule | None, str]:
    names = _names_of(model)
    for rule, permit in list(place.users):
        for action in actions_of(rule, *_STRATEGIES) if rule is not None and permit.acts else ():
            if action["target"] in names and rule is not None and applies(rule, Facts()):
                return rule, next(verb for verb in _STRATEGIES if verb in action)
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
