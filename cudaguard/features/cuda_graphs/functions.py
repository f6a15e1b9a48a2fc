"""The function for compiled callables: ``graph_safe``."""

from __future__ import annotations

import sys

from cudaguard.core.lifecycle import activation
from cudaguard.errors import GraphError
from cudaguard.features.cuda_graphs.copies import (
    disable_graphs,
    place_in,
    protect,
    uses_graphs,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal, TypeVar

    F = TypeVar("F")
    Strategy = Literal["clone", "no-graphs"]

_STRATEGIES = ("clone", "no-graphs")


def graph_safe(fn: F, *, strategy: Strategy = "clone") -> F:
    """Return a compiled callable whose results stay valid after its next call.

    A callable that ``torch.compile`` made to use CUDA graphs (``mode="reduce-overhead"``,
    ``"max-autotune"``) returns tensors in memory that its next calls write to. torch raises an
    error for the first calls only; later ones overwrite silently (pytorch/pytorch#122192).

    One that is known to use no CUDA graphs is returned as it is. A module is changed in place and
    returned. While torch compiles a caller, nothing is done.

    Args:
        fn: A compiled function, method or module.
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
