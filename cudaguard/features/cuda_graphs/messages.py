"""The wording of what is seen of CUDA graphs: outputs that are overwritten."""

from __future__ import annotations

from cudaguard.model import Finding

OVERWRITTEN, PARKED, STALE, NOT_COPIED = "CG851", "CG852", "CG853", "CG854"
MOVES = "CG855"
NO_SETTING = "CG896"
_LINK = "https://github.com/pytorch/pytorch/issues/122192"
_SAM2 = "https://github.com/facebookresearch/sam2/issues/460"
_COPY = (
    "keep a copy: y = f(x).clone(), or f = cudaguard.graph_safe(f); or compile with "
    "mode='max-autotune-no-cudagraphs'; or enable rule CG039 with torch 2.14 or later. "
    "cudagraph_mark_step_begin() does not help"
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
            f"A later call of a compiled function with CUDA graphs overwrote a gradient{made}.",
            severity="error",
            consequence="the gradient holds the values of another call.",
            remedy="call optimizer.zero_grad(set_to_none=True) before each backward, or allocate "
            ".grad before the first compiled one",
            links=(_LINK,),
        )
    return Finding(
        OVERWRITTEN,
        f"A later call of a compiled function with CUDA graphs overwrote a tensor{made}.",
        severity="error",
        consequence="torch notices this only in the first calls. Later the tensor silently holds "
        "the results of another call.",
        remedy=_COPY + _parked_in_sam2(producer),
        links=(_LINK, *((_SAM2,) if _parked_in_sam2(producer) else ())),
    )


def _parked_in_sam2(producer: str) -> str:
    if not producer.rpartition(":")[0].endswith("position_encoding.py"):
        return ""
    return (
        ". In SAM2 it is the position-encoding cache, so copying outputs does not help: enable "
        "rule CG028, or use cudaguard.graph_safe(..., stored_tensors='copy')"
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
            f"cudaguard replaced {place} {shape}, stored by a compiled call, with a copy.",
            severity="info",
            links=(_SAM2,),
        )
    return Finding(
        PARKED,
        f"A compiled call stored {place} {shape}.",
        consequence="with CUDA graphs a later call can overwrite it. Copying the outputs does not "
        "help.",
        remedy="use cudaguard.graph_safe(..., stored_tensors='copy'), or fill that container "
        "before the first compiled call",
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
        f"{place} {shape} gets a new address at every call: the program holds the earlier copies.",
        severity="info",
        consequence="torch records every CUDA graph that reads it again. Calls take longer, and "
        "memory grows.",
        remedy="hold a copy (state.clone()) instead of the tensor, or compile this module with "
        "mode='max-autotune-no-cudagraphs'",
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
        f"The call at {overwritten_at} overwrote the result {shape} of the call at {made_at}, "
        "which the program still holds.",
        consequence="the next read of it returns the values of another call.",
        remedy=_COPY,
        links=(_LINK,),
    )


def not_copied(kind: str) -> Finding:
    """A result has tensors in objects that are not looked into."""
    return Finding(
        NOT_COPIED,
        f"graph_safe does not copy tensors in the attributes of a {kind}.",
        consequence="if there are any, a later call of the compiled function can overwrite them.",
        remedy="return them in a dictionary, list, tuple or dataclass, or copy them yourself",
        links=(_LINK,),
    )


GENERATION_CLONING = (
    "switched on for all threads: torch copies results that are still held before a CUDA graph "
    "overwrites them, in all code compiled from now on"
)
COPIED = "copied"
WITHOUT_GRAPHS = "compiled without CUDA graphs"


def no_generation_cloning(rule: str, setting: str, version: str) -> Finding:
    """This torch cannot copy held results itself.

    Args:
        rule: The id of the rule that is to have it do so.
        setting: The setting that it lacks.
        version: The version of torch.
    """
    return Finding(
        NO_SETTING,
        f"Rule {rule} has no effect with torch {version}: cudaguard cannot set "
        f"torch._inductor.config.{setting}.",
        consequence="results of callables that use CUDA graphs are overwritten as before.",
        remedy="wrap each such callable: fn = cudaguard.graph_safe(fn); or use torch 2.14 or later",
        links=(_LINK,),
    )
