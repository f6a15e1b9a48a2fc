"""Compiled callables made safe: by ``graph_safe``, and by the rules that name what is compiled."""

from __future__ import annotations

import copy
import dataclasses
import functools
import sys

from cudaguard.core.explain import error_passes
from cudaguard.core.lifecycle import activation
from cudaguard.core.rule import actions_of
from cudaguard.errors import GraphError
from cudaguard.features.cuda_graphs import findings
from cudaguard.files import program_errors
from cudaguard.hooks.barrier import ask
from cudaguard.hooks.caller import frame_outside_of
from cudaguard.model import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Literal, TypeVar

    F = TypeVar("F")
    Strategy = Literal["clone", "no-graphs"]

    from cudaguard.core.repairs import Outcomes, Request
    from cudaguard.core.replace import ReplacedPlace
    from cudaguard.core.reports import Reporter
    from cudaguard.core.rule import Rule

_STRATEGIES = ("clone", "no-graphs")


def graph_safe(fn: F, *, strategy: Strategy = "clone") -> F:
    """Return a compiled callable whose results stay valid after its next call.

    A callable that ``torch.compile`` made to use CUDA graphs (``mode="reduce-overhead"``,
    ``"max-autotune"``) returns tensors in memory that its next calls write to. torch raises an
    error for the first calls only; later ones overwrite silently (pytorch/pytorch#122192), as each
    call does of what ``torch.cuda.make_graphed_callables`` returns.

    One that is known to use no CUDA graphs is returned as it is. A module is changed in place and
    returned. While torch compiles a caller, nothing is done.

    Args:
        fn: A compiled or graphed function, method or module.
        strategy: ``clone``: what is returned are copies; the same tensor twice is one copy. Looked
            into are dictionaries, lists, tuples and dataclasses. ``no-graphs``: compiled without
            CUDA graphs, in place; torch compiles again what it has compiled so far.

    Raises:
        GraphError: It cannot be done: not a callable, no torch, or a compiler that is nothing but
            CUDA graphs; the message says what to do.
        ValueError: An unknown strategy.
    """
    if strategy not in _STRATEGIES:
        raise ValueError(f"strategy is {strategy!r}, expected one of {', '.join(_STRATEGIES)}")
    if not callable(fn):
        raise GraphError(f"graph_safe() takes a compiled callable, not {type(fn).__name__} {fn!r}")
    if "torch" not in sys.modules:
        raise GraphError(
            "graph_safe() takes what torch.compile has returned, and torch is not imported"
        )
    torch: Any = sys.modules["torch"]
    if isinstance(fn, torch.nn.Module) and not (place_in(fn) or hasattr(fn, "_orig_mod")):
        raise GraphError(
            f"this {type(fn).__name__} is not compiled itself: hand over what torch.compile has "
            "returned, or the part of it that is compiled, as in model.encoder"
        )
    if uses_graphs(fn) is False:
        return fn
    if strategy == "no-graphs":
        if not disable_graphs(fn):
            raise GraphError(
                "strategy 'no-graphs': its compiler is not known to do without CUDA graphs: "
                "use 'clone', or compile with mode='max-autotune-no-cudagraphs'"
            )
        torch.compiler.reset()  # or it would go on with what was compiled for earlier calls
        return fn
    protected: F = protect(activation.core.reporter, fn)
    return protected


def protect(reporter: Reporter, compiled: Any) -> Any:
    """Return a callable, or the same module, whose results are copied.

    While torch compiles a caller, nothing of this is there. A step is never marked: that is what
    lets results be overwritten.
    """
    if not isinstance(compiled, sys.modules["torch"].nn.Module):
        return _wrap(reporter, compiled)
    name = place_in(compiled) or "forward"
    setattr(compiled, name, _wrap(reporter, getattr(compiled, name)))
    return compiled


def _wrap(reporter: Reporter, function: Any) -> Any:
    function = getattr(function, "_cudaguard_of", function)  # one layer, not two
    is_compiling = sys.modules["torch"].compiler.is_compiling

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return function(*args, **kwargs)
        try:
            result = function(*args, **kwargs)
        except RuntimeError as error:
            error_passes(reporter, error)
            raise
        try:
            return copied(result, (args, kwargs))
        except program_errors(Exception) as error:
            reporter.broken("copying the result of a compiled call", error)
            return result

    call._cudaguard_of = function  # type: ignore[attr-defined]  # for `compiled.inner`
    return call


# --- Copies ---------------------------------------------------------------------------------------


def copied(result: Any, arguments: Any) -> Any:
    """Return a result with its tensors copied; itself if it has none.

    What lies in the memory of the arguments is the caller's own, and is handed on as it is.
    """
    torch: Any = sys.modules["torch"]
    own: set[int | None] = set()

    def take_note(tensor: Any) -> Any:
        own.add(_storage_of(tensor))
        return tensor

    def copy_of(tensor: Any) -> Any:
        storage = _storage_of(tensor)
        is_own = storage in own and storage is not None
        return tensor if is_own or isinstance(tensor, torch.nn.Parameter) else tensor.clone()

    _with_tensors(arguments, take_note, {})
    return _with_tensors(result, copy_of, {})


def _storage_of(tensor: Any) -> int | None:
    """Return what tells whose memory a tensor lies in; None if it has none of its own."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (AttributeError, NotImplementedError, RuntimeError):
        return None


def _with_tensors(value: Any, replace: Any, done: dict[int, tuple[Any, Any]]) -> Any:
    """Return a value with something else in place of its tensors; itself if nothing has changed.

    `done` has objects, which it keeps alive, and what has become of them, by their ids.
    """
    if id(value) in done:
        return done[id(value)][1]
    if isinstance(value, sys.modules["torch"].Tensor):
        new = replace(value)
    else:
        items = _items_of(value)
        done[id(value)] = (value, value)  # for a container within itself
        changed = {}
        for key, item in items.items():
            twin = _with_tensors(item, replace, done)
            if twin is not item:
                changed[key] = twin
        new = _rebuilt(value, {**items, **changed}, changed) if changed else value
    done[id(value)] = (value, new)
    return new


def _items_of(value: Any) -> dict[Any, Any]:
    """Return what is in a container, by key, place or name; nothing for other objects."""
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, (list, tuple)):
        return dict(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: getattr(value, name) for name in names if hasattr(value, name)}
    return {}


def _rebuilt(value: Any, items: dict[Any, Any], changed: dict[Any, Any]) -> Any:
    """Return a container of the same class with other items."""
    kind: Any = type(value)
    if isinstance(value, (dict, list)):
        twin = copy.copy(value)
        for key, item in changed.items():
            twin[key] = item
        return twin
    if hasattr(kind, "n_sequence_fields"):  # a named tuple of C, as torch.return_types
        return kind(items.values())
    # Whatever its own constructor takes, and frozen ones, too.
    if isinstance(value, tuple):
        twin = tuple.__new__(kind, items.values())
        changed = {}
    else:
        twin, changed = object.__new__(kind), items
    getattr(twin, "__dict__", {}).update(getattr(value, "__dict__", {}))
    for name, item in changed.items():
        object.__setattr__(twin, name, item)
    return twin


# --- What ``torch.compile`` has returned: whether it uses CUDA graphs, and how it does without ----
# torch is asked where it is there; nothing is imported and nothing is compiled for it. The compiler
# of a callable stands in its closure, which is private to torch; it reads its options when it
# compiles.
#
# Source: torch 2.13, ``torch/__init__.py`` (``compile``, ``_TorchCompileInductorWrapper``),
# ``torch/_dynamo/eval_frame.py``.

_OPTION = "triton.cudagraphs"
_BACKEND = "cudagraphs"
_GRAPHED = "torch.cuda.graphs"  # where `make_graphed_callables` is
_MOST_WRAPPERS = 8  # wrappers around a compiler or a compiled callable that are looked through


def uses_graphs(compiled: Any) -> bool | None:
    """Return whether a compiled function, method or module uses CUDA graphs, None if unknown."""
    compiler = _compiler_of(compiled)
    if _name_of(compiler) == _BACKEND:
        return True
    options = getattr(compiler, "config", None)
    if not isinstance(options, dict):
        return None
    config = getattr(sys.modules.get("torch._inductor.config"), "triton", None)
    value = options.get(_OPTION, getattr(config, "cudagraphs", None))
    return None if value is None else bool(value)


def disable_graphs(compiled: Any) -> bool:
    """Have it compiled without CUDA graphs, all else as it was; return False if that cannot be.

    What is compiled of it already stays as it is, until torch is reset.
    """
    compiler = _compiler_of(compiled)
    options = getattr(compiler, "config", None)
    if _name_of(compiler) == _BACKEND or not isinstance(options, dict):
        return False
    options[_OPTION] = False
    return True


def _compiler_of(compiled: Any) -> Any:
    """Return the compiler that a compiled callable was made with, None where it is not found."""
    for _ in range(_MOST_WRAPPERS):  # modules compiled in place, and wrappers of ours
        below = getattr(compiled, "__dict__", {}).get(place_in(compiled) or "_cudaguard_of")
        if below is None:
            break
        compiled = below
    compiler = getattr(getattr(compiled, "__dict__", {}).get("dynamo_ctx"), "callback", None)
    code, cells = getattr(compiled, "__code__", None), getattr(compiled, "__closure__", None)
    if compiler is None and code is not None and cells and "callback" in code.co_freevars:
        compiler = cells[code.co_freevars.index("callback")].cell_contents
    for _ in range(_MOST_WRAPPERS):
        below = getattr(compiler, "_torchdynamo_orig_backend", None)
        if below is None or isinstance(getattr(compiler, "config", None), dict):
            break
        compiler = below
    return compiler


def _name_of(compiler: Any) -> str:
    return str(getattr(compiler, "compiler_name", getattr(compiler, "__name__", "")))


def place_in(module: Any) -> str:
    """Return the attribute in which a module has what was compiled in place, or nothing.

    torch itself puts it into the one, programs and `make_graphed_callables` into the other.
    """
    attributes = getattr(module, "__dict__", {})
    if attributes.get("_compiled_call_impl") is not None:
        return "_compiled_call_impl"
    forward = attributes.get("forward")
    is_graphed = getattr(forward, "__module__", "") == _GRAPHED
    is_compiled = is_graphed or hasattr(forward, "_torchdynamo_orig_callable")
    return "forward" if is_compiled and "_orig_mod" not in attributes.get("_modules", {}) else ""


# --- What torch.compile compiles, as the rules want it that name it -------------------------------

PLACE = "torch.compile"
_VERBS = ("disable_cuda_graphs", "clone_outputs")


def replace_compile(request: Request) -> Outcomes:
    """Replace ``torch.compile``, for the rules that are about what is compiled."""
    torch: Any = sys.modules.get("torch")
    if (original := getattr(torch, "compile", None)) is None:
        return ()

    def make(place: ReplacedPlace, _: object) -> Any:
        @functools.wraps(original)
        def compile(model: Any = None, *args: Any, **keywords: Any) -> Any:
            compiled = original(model, *args, **keywords)
            if model is None:  # torch comes back with one
                return compiled
            what, given = f"looking at what {PLACE} has made", (place, model, compiled)
            return ask(request.reporter, what, _by_rule, request.reporter, *given, default=compiled)

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
            if action["target"] in names:
                return rule, next(verb for verb in _VERBS if verb in action)
    return None, ""
