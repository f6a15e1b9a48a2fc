"""What torch.compile compiles, made safe as the rules want it that name it."""

from __future__ import annotations

import functools
import sys

from cudaguard.core.decide import applies
from cudaguard.core.patterns import actions_of
from cudaguard.features.cuda_graphs import findings
from cudaguard.features.cuda_graphs.functions import disable_graphs, protect, uses_graphs
from cudaguard.files import own_errors
from cudaguard.hooks.caller import frame_outside_of
from cudaguard.system.facts import Facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cudaguard.core.replace import ReplacedPlace
    from cudaguard.core.reports import Reporter
    from cudaguard.core.request import Outcomes, Request
    from cudaguard.model import Rule

PLACE = "torch.compile"
_VERBS = ("disable_cuda_graphs", "clone_outputs")


def replace_compile(request: Request) -> Outcomes:
    """Replace ``torch.compile``, for the rules that are about what is compiled."""
    torch: Any = sys.modules.get("torch")
    original = getattr(torch, "compile", None)
    if original is None:
        return ()

    def make(place: ReplacedPlace, _: object) -> Any:
        @functools.wraps(original)
        def compile(model: Any = None, *args: Any, **keywords: Any) -> Any:
            compiled = original(model, *args, **keywords)
            if model is None:  # torch comes back with one
                return compiled
            try:
                return _by_rule(request.reporter, place, model, compiled)
            except own_errors(Exception) as error:
                request.reporter.broken(f"looking at what {PLACE} has made", error)
                return compiled

        return compile

    request.replacements.put(request, PLACE, torch, "compile", make)
    return ()


def _by_rule(reporter: Reporter, place: ReplacedPlace, model: Any, compiled: Any) -> Any:
    """Return a callable that was just compiled as the rule that names it wants it."""
    owner = getattr(model, "__self__", model)
    named = owner if hasattr(owner, "__qualname__") else type(owner)
    is_module = isinstance(owner, sys.modules["torch"].nn.Module)
    kinds = type(owner).__mro__ if is_module else (model,)
    names = {
        f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', '')}" for kind in kinds
    }
    rule, verb = _rule_for(place, names)
    if rule is None or uses_graphs(compiled) is False:
        return compiled
    name, frame = f"{named.__module__}.{named.__qualname__}", frame_outside_of("torch")
    if verb == "clone_outputs":
        reporter.repaired(rule.id, verb, f"results of {name}", findings.COPIED, frame=frame)
        return protect(reporter, compiled)
    if disable_graphs(compiled):
        reporter.repaired(rule.id, verb, name, findings.WITHOUT_GRAPHS, frame=frame)
    return compiled


def _rule_for(place: ReplacedPlace, names: set[str]) -> tuple[Rule | None, str]:
    """Return the rule that names something, and what it wants."""
    for rule, permit in place.users.copy().items():
        for action in actions_of(rule, *_VERBS) if permit.acts else ():
            if action["target"] in names and applies(rule, Facts()):
                return rule, next(verb for verb in _VERBS if verb in action)
    return None, ""
