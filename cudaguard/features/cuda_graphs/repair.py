"""Compiled callables that use CUDA graphs: made safe on request, or by rule when compiled.

While torch compiles a caller of what is wrapped here, nothing of this is there. A step is never
marked: that is what lets results be overwritten.
"""

from __future__ import annotations

import copy
import functools
import sys
import weakref

from cudaguard.core.caller import describe, frame_outside_of
from cudaguard.core.decide import applies
from cudaguard.core.passing_errors import error_passes
from cudaguard.core.patterns import actions_of
from cudaguard.core.replace import Replaced
from cudaguard.errors import CudaGuardWarning
from cudaguard.features.cuda_graphs import findings
from cudaguard.features.cuda_graphs.copies import (
    ResultCopies,
    Walker,
    disable_graphs,
    place_in,
    uses_graphs,
)
from cudaguard.features.cuda_graphs.known_errors import overwritten
from cudaguard.files import ours, theirs
from cudaguard.system.facts import Facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cudaguard.core.replace import ReplacedPlace
    from cudaguard.core.reports import Reporter
    from cudaguard.core.request import Outcomes, Request
    from cudaguard.model import Rule

# --- Results that somebody still holds when a later call has overwritten them, without an error.
# For debugging: each result is copied and compared, which takes memory and time, and has the host
# wait for the device at every call.


class HeldResults:
    """Remembers what the calls of one callable have returned, and looks at it before the next.

    Args:
        reporter: Is told.
    """

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._results: list[tuple[Any, Any, int, str]] = []  # reference, copy, version, line
        self._last_line = ""

    def begin(self) -> None:
        """Tell, before a call, of what the last one has overwritten and is held all the same.

        Not before: in ``y = f(x)`` the result before is held until the new one is there.
        """
        left = []
        for reference, before, version, line in self._results:
            tensor = reference()
            # The program itself may write to a result; that is counted.
            if tensor is None or _version(tensor) != version:
                continue
            if _is_same(tensor, before):
                left.append((reference, before, version, line))
            else:
                finding = findings.stale(line, tuple(tensor.shape), self._last_line)
                self._reporter.found(finding, frame_outside_of("torch"))
        self._results = left

    def hand_out(self, result: Any, _: object) -> Any:
        """Return the result of a call, of which every tensor is an object of this call.

        torch hands out the same ones again and again once a graph is recorded, and holds them
        itself: nobody could tell whether the program does.
        """
        self._last_line = describe(frame_outside_of("torch"))
        is_torchs = getattr(sys.modules["torch"]._C, "_is_cached_tensor", lambda _: False)
        own: dict[int, tuple[Any, Any]] = {}

        def visit(tensor: Any) -> Any:
            if id(tensor) not in own:
                twin = tensor.view_as(tensor) if is_torchs(tensor) else tensor
                own[id(tensor)] = (tensor, twin)
            return own[id(tensor)][1]

        result = Walker(visit).walk(result)
        for _, tensor in own.values():
            if not (tensor.is_meta or tensor.is_quantized or tensor.is_nested or tensor.is_sparse):
                before = tensor.detach().resolve_conj().resolve_neg().clone()
                entry = weakref.ref(tensor), before, _version(tensor), self._last_line
                self._results.append(entry)
        return result


def _version(tensor: Any) -> int:
    return -1 if tensor.is_inference() else int(tensor._version)  # there they are not counted


def _is_same(tensor: Any, before: Any) -> bool:
    torch: Any = sys.modules["torch"]
    try:
        # As bytes: NaN is not equal to itself.
        now = tensor.detach().resolve_conj().resolve_neg().contiguous()
        now = now.reshape(-1).view(torch.uint8)
    except RuntimeError as error:
        return overwritten(str(error)) is None  # torch knows of it, and refuses to read it
    return bool(torch.equal(now, before.contiguous().reshape(-1).view(torch.uint8)))


PLACE = "torch.compile"
_VERBS = ("disable_cuda_graphs", "clone_outputs")


# --- what stands around a compiled callable ---------------------------------------------------


def protect(reporter: Reporter, compiled: Any, *, is_watched: bool = False) -> Any:
    """Return a callable, or the same module, whose results are copied.

    Args:
        reporter: Is told.
        compiled: A compiled function, method or module.
        is_watched: True to tell of results that are overwritten instead.
    """
    if not isinstance(compiled, sys.modules["torch"].nn.Module):
        return _wrap(reporter, compiled, is_watched)
    place = place_in(compiled)
    name = place or "forward"
    setattr(compiled, name, _wrap(reporter, getattr(compiled, name), is_watched))
    if not place:
        _protect_copies(compiled, functools.partial(protect, reporter, is_watched=is_watched))
    return compiled


def _wrap(reporter: Reporter, function: Any, is_watched: bool) -> Any:
    function = getattr(function, "_cudaguard_of", function)  # one layer, not two
    torch: Any = sys.modules["torch"]
    is_compiling = torch.compiler.is_compiling
    results: HeldResults | ResultCopies = (
        HeldResults(reporter) if is_watched else ResultCopies(reporter)
    )

    def shielded(look: Callable[..., Any], unchanged: Any, *arguments: Any) -> Any:
        try:
            return look(*arguments)
        except CudaGuardWarning:  # the program's filters make an error of what it is told
            raise
        except theirs(Exception) as error:
            reporter.broken("looking after the result of a compiled call", error)
            return unchanged

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return function(*args, **kwargs)
        shielded(results.begin, None)
        try:
            result = function(*args, **kwargs)
        except RuntimeError as error:
            error_passes(reporter, error)
            raise
        return shielded(results.hand_out, result, result, (args, kwargs))

    call._cudaguard_of = function  # type: ignore[attr-defined]  # for `compiled.inner`
    return call


def _protect_copies(module: Any, protect: Callable[[Any], Any]) -> None:
    """Have ``copy.deepcopy`` of what ``torch.compile`` has made of a module protected as well.

    torch makes its forward anew. ``copy.copy`` asks nobody but the class; pickles stay as they are
    and need nothing of ours.

    Args:
        module: The module; nothing is done for one of a torch that copies in another way.
        protect: Protects a module in place.
    """
    if "__reduce__" not in vars(type(module)):
        return

    def deepcopy(memo: dict[int, Any]) -> Any:
        kind, parts = module.__reduce__()
        return protect(kind(*copy.deepcopy(parts, memo)))

    # Past torch, which sets attributes of what it has wrapped. They are not pickled.
    vars(module)["__deepcopy__"] = deepcopy


# --- by rule, where torch.compile is called ---------------------------------------------------


def put_up(request: Request) -> Outcomes:
    """Have ``torch.compile`` seen, for the rules that are about what is compiled."""
    torch: Any = sys.modules.get("torch")
    original = getattr(torch, "compile", None)
    if original is None:
        return ()

    def make(place: ReplacedPlace, _: object) -> Replaced:
        @functools.wraps(original)
        def compile(model: Any = None, *args: Any, **keywords: Any) -> Any:
            compiled = original(model, *args, **keywords)
            if model is None:  # torch comes back with one
                return compiled
            try:
                return _by_rule(request.reporter, place, model, compiled)
            except ours(Exception) as error:
                request.reporter.broken(f"looking at what {PLACE} has made", error)
                return compiled

        return Replaced(torch, "compile", compile)

    request.put(PLACE, torch, make)
    return ()


def _by_rule(reporter: Reporter, place: ReplacedPlace, model: Any, compiled: Any) -> Any:
    """Return a callable that was just compiled as the rule that names it wants it."""
    rule, verb = _rule_for(place, model)
    uses = uses_graphs(compiled)
    if rule is None or uses is False:
        return compiled
    owner = getattr(model, "__self__", model)
    named = owner if hasattr(owner, "__qualname__") else type(owner)
    name, frame = f"{named.__module__}.{named.__qualname__}", frame_outside_of("torch")
    if verb == "clone_outputs":
        reporter.repaired(rule.id, verb, f"results of {name}", findings.COPIED, frame=frame)
        return protect(reporter, compiled)
    if disable_graphs(compiled):
        reporter.repaired(rule.id, verb, name, findings.WITHOUT_GRAPHS, frame=frame)
    return compiled


def _rule_for(place: ReplacedPlace, model: Any) -> tuple[Rule | None, str]:
    names = _names_of(model)
    for rule, permit in list(place.users):
        for action in actions_of(rule, *_VERBS) if permit.acts else ():
            if action["target"] in names and applies(rule, Facts()):
                return rule, next(verb for verb in _VERBS if verb in action)
    return None, ""


def _names_of(model: Any) -> set[str]:
    """Return the names that a rule may call it by: its class and the bases, or the function."""
    owner = getattr(model, "__self__", model)
    if isinstance(owner, sys.modules["torch"].nn.Module):
        return {f"{kind.__module__}.{kind.__qualname__}" for kind in type(owner).__mro__}
    return {f"{getattr(model, '__module__', '')}.{getattr(model, '__qualname__', '')}"}
