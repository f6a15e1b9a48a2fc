"""The wording of what is seen of CUDA graphs: outputs that are overwritten."""

from __future__ import annotations

from cudaguard.model import Finding

OVERWRITTEN, PARKED, STALE, NOT_COPIED = "CG851", "CG852", "CG853", "CG854"
MOVES = "CG855"
NO_SETTING = "CG896"
_LINK = "https://github.com/pytorch/pytorch/issues/122192"
_SAM2 = "https://github.com/facebookresearch/sam2/issues/460"
_COPY = (
    "keep a copy: y = f(x).clone(), or f = cudaguard.graph_safe(f), or compile without CUDA graphs "
    "(mode='max-autotune-no-cudagraphs'), or have torch 2.14 and later copy what is held (rule "
    "CG039, in the whole process). cudagraph_mark_step_begin() is no cure: it ends the "
    "step, which is when tensors are overwritten"
)


def overwritten(producer: str, function: str, *, is_gradient: bool) -> Finding:
    """The output of a CUDA graph was read that torch knows to be overwritten.

    Args:
        producer: ``file:line`` of the code that made the tensor; may be empty.
        function: The function that this line is in.
        is_gradient: True if it is a gradient.
    """
    made = f" that {function or 'a function'} made at {producer}" if producer else ""
    if is_gradient:
        return Finding(
            OVERWRITTEN,
            f"A gradient{made} was overwritten by a later call of a compiled function that uses "
            "CUDA graphs.",
            severity="error",
            remedy="allocate .grad before the first compiled backward, or set it to None before "
            "each (optimizer.zero_grad(set_to_none=True))",
            links=(_LINK,),
        )
    return Finding(
        OVERWRITTEN,
        f"A tensor{made} was read after a later call of a compiled function that uses CUDA graphs "
        "had overwritten it.",
        severity="error",
        consequence="torch notices it for the first calls only; after those such a tensor silently "
        "holds the results of another call.",
        remedy=_COPY + _parked_in_sam2(producer),
        links=(_LINK, *((_SAM2,) if _parked_in_sam2(producer) else ())),
    )


def _parked_in_sam2(producer: str) -> str:
    if not producer.rpartition(":")[0].endswith("position_encoding.py"):
        return ""
    return (
        ". In SAM2 it is the cache of the position encoding, which no copy of an output reaches: "
        "enable rule CG028, or cudaguard.graph_safe(..., stored_tensors='copy')"
    )


def parked(place: str, shape: tuple[int, ...], *, is_copied: bool) -> Finding:
    """A compiled call has left a tensor in a container of its module.

    Args:
        place: Where, as in ``PositionEmbeddingSine.cache[(64, 64)]``.
        shape: Its shape.
        is_copied: True if it was replaced by a copy.
    """
    if is_copied:
        return Finding(
            PARKED,
            f"{place} {shape}, left there by a compiled call, was replaced by a copy.",
            severity="info",
            links=(_SAM2,),
        )
    return Finding(
        PARKED,
        f"{place} {shape} was stored by a compiled call.",
        consequence="where that call uses CUDA graphs a later one overwrites it; copies of the "
        "outputs do not help.",
        remedy="cudaguard.graph_safe(..., stored_tensors='copy') replaces it by a copy after the "
        "call that stores it; or fill that container before the first compiled call",
        links=(_SAM2,),
    )


def moves(place: str, shape: tuple[int, ...]) -> Finding:
    """A stored tensor is copied to a new address at every call, as somebody holds the last copy.

    Args:
        place: Where, as in ``Recurrent.state``.
        shape: Its shape.
    """
    return Finding(
        MOVES,
        f"{place} {shape} gets a new address at every call, since the program holds the earlier "
        "ones.",
        severity="info",
        consequence="if a CUDA graph reads it, torch records that graph again each time: calls "
        "take longer, and memory grows.",
        remedy="keep a copy of it (state.clone()) instead of the tensor itself, or compile this "
        "module without CUDA graphs (mode='max-autotune-no-cudagraphs')",
        links=(_LINK,),
    )


def stale(made_at: str, shape: tuple[int, ...], overwritten_at: str) -> Finding:
    """A result that is still held was overwritten by a later call.

    Args:
        made_at: The line that made it.
        shape: Its shape.
        overwritten_at: The line of the call that has overwritten it.
    """
    return Finding(
        STALE,
        f"The result {shape} of the call at {made_at} is still held, and the call at "
        f"{overwritten_at} has overwritten it.",
        consequence="the next read of it gets the values of another call.",
        remedy=_COPY,
        links=(_LINK,),
    )


def not_copied(kind: str) -> Finding:
    """A result has tensors in objects that are not looked into."""
    return Finding(
        NOT_COPIED,
        f"Tensors in the attributes of a {kind} are not copied.",
        consequence="a later call of the compiled function overwrites them.",
        remedy="return them in a dictionary, list, tuple or dataclass, or copy them yourself",
        links=(_LINK,),
    )


GENERATION_CLONING = (
    "switched on for all threads: torch copies results that are held when a CUDA graph is to "
    "overwrite them, in all that is compiled from now on"
)
COPIED = "copied"
WITHOUT_GRAPHS = "compiled without CUDA graphs"


def no_generation_cloning(who: str, setting: str, version: str) -> Finding:
    """This torch cannot copy held results itself.

    Args:
        who: The rule that is to have it do so.
        setting: The setting that it lacks.
        version: The version of torch.
    """
    return Finding(
        NO_SETTING,
        f"{who} can do nothing with torch {version}: torch._inductor.config.{setting} is not "
        "there, or not as torch 2.14 and 2.15 have it.",
        consequence="results of callables that use CUDA graphs are overwritten as before.",
        remedy="fn = cudaguard.graph_safe(fn) for each such callable, or torch 2.14 or later",
        links=(_LINK,),
    )
