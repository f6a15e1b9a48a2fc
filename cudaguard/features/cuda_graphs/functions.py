"""The switch for compiled callables: ``graph_safe``."""

from __future__ import annotations

import sys
from importlib import import_module

from cudaguard.core.lifecycle import activation
from cudaguard.errors import GraphError
from cudaguard.features.cuda_graphs.repair.compilations import make_safe
from cudaguard.features.cuda_graphs.repair.generations import MODULE, SETTING
from cudaguard.features.cuda_graphs.repair.use import (
    graph_use,
    how_compiled,
    inner,
    place_in,
    without_graphs,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal, TypeVar

    F = TypeVar("F")
    Strategy = Literal["auto", "clone", "generation", "no-graphs", "watch"]
    StoredTensors = Literal["auto", "report", "copy"]

STRATEGIES = ("auto", "clone", "generation", "no-graphs", "watch")
STORED_TENSORS = ("auto", "report", "copy", None)


def graph_safe(
    fn: F, *, strategy: Strategy = "auto", stored_tensors: StoredTensors | None = "auto"
) -> F:
    """Return a compiled callable whose results stay valid after its next call.

    A callable that ``torch.compile`` made to use CUDA graphs (``mode="reduce-overhead"``,
    ``"max-autotune"``) returns tensors in memory that its next calls write to. torch raises an
    error for the first calls only; later ones overwrite silently (pytorch/pytorch#122192).

    One that is known to use no CUDA graphs is returned as it is. A module is changed in place and
    returned. While torch compiles a caller, nothing is done.

    Args:
        fn: A compiled function, method or module.
        strategy: ``auto`` is ``clone``. ``clone``: what is returned are copies; the same tensor
            twice is one copy, and parts of the same memory share the copy's, unless gradients pass
            through them. Looked into are dictionaries, lists, tuples and dataclasses.
            ``no-graphs``: compiled again without CUDA graphs; its arguments must have been seen
            (rule CG027). ``generation``: torch itself copies what is still held (torch 2.14 and
            later); as rule CG039 it holds for the whole process, for all that is compiled after
            it, and until `uninstall`. ``watch``, for debugging: results lie in the memory that
            torch returns, and one that a later call overwrites while somebody holds it is
            reported with both lines, when the call after that begins.
        stored_tensors: What to do with tensors that the first calls store in attributes,
            dictionaries and lists of the module, which no copy of a result reaches: ``report``,
            ``copy`` (replace each by a copy), or None: do not look. ``auto`` is ``report`` with
            ``clone`` and ``watch``, else None.

    Raises:
        GraphError: It cannot be done: not a callable, no torch, or what the strategy needs is
            missing; the message says what to do.
        ValueError: An unknown strategy, or value of `stored_tensors`.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy is {strategy!r}, expected one of {', '.join(STRATEGIES)}")
    if stored_tensors not in STORED_TENSORS:
        raise ValueError(
            f"stored_tensors is {stored_tensors!r}, expected 'auto', 'report', 'copy' or None"
        )
    if not callable(fn):
        raise GraphError(f"graph_safe() takes a compiled callable, not {type(fn).__name__} {fn!r}")
    if "torch" not in sys.modules:
        raise GraphError(
            "graph_safe() takes what torch.compile has returned, and torch is not imported"
        )
    _refuse_uncompiled_module(fn)
    if graph_use(fn).is_used is False and strategy != "watch":
        return fn
    made: F = fn
    if strategy == "no-graphs":
        made = _compiled_again(fn)
        stored_tensors = None  # nothing is overwritten any more
    if strategy == "generation":
        _have_generations_cloned()
    copies, watch = strategy in ("auto", "clone"), strategy == "watch"
    if stored_tensors == "auto":
        stored_tensors = "report" if copies or watch else None
    if copies or watch or stored_tensors is not None:
        made = make_safe(
            activation.core.reporter, fn, copies=copies, parked=stored_tensors, watch=watch
        )
    return made


def _refuse_uncompiled_module(fn: Any) -> None:
    torch: Any = sys.modules["torch"]
    if isinstance(fn, torch.nn.Module) and not (place_in(fn) or hasattr(fn, "_orig_mod")):
        raise GraphError(
            f"this {type(fn).__name__} is not compiled itself: hand over what torch.compile has "
            "returned, or the part of it that is compiled, as in model.encoder"
        )


def _have_generations_cloned() -> None:
    from cudaguard.features.cuda_graphs.repair.setting import put_up_on_request

    # torch.compile, by which `fn` was made, has imported it already in most cases.
    if not put_up_on_request(activation.core, import_module(MODULE)):
        version = sys.modules["torch"].__version__
        raise GraphError(
            f"strategy 'generation' needs torch 2.14 or later, whose {MODULE} has "
            f"{SETTING}; this is torch {version}: use 'clone'"
        )


def _compiled_again(fn: Any) -> Any:
    torch: Any = sys.modules["torch"]
    keywords = how_compiled(fn)
    if keywords is None:
        raise GraphError(
            "strategy 'no-graphs' compiles anew with the arguments of torch.compile, which nobody "
            "has seen: install(enable=['CG027']) before torch.compile is called; or compile with "
            "mode='max-autotune-no-cudagraphs' yourself"
        )
    try:
        changed = without_graphs(keywords)
    except ValueError as error:
        raise GraphError(f"strategy 'no-graphs': {error}; choose another backend") from None
    name = place_in(fn)
    made = inner(fn)
    if name:
        setattr(fn, name, torch.compile(made._torchdynamo_orig_callable, **changed))
        return fn
    original = getattr(made, "_orig_mod", None)
    if original is None:
        original = made._torchdynamo_orig_callable
    return torch.compile(original, **changed)
