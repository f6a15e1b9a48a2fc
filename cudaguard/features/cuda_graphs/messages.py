"""The wording of what is seen of CUDA graphs: outputs that are overwritten."""

from __future__ import annotations

from cudaguard.model import Finding

OVERWRITTEN, STALE, NOT_COPIED = "CG851", "CG853", "CG854"
COPIED, WITHOUT_GRAPHS = "copied", "compiled without CUDA graphs"
_LINK = "https://github.com/pytorch/pytorch/issues/122192"
_SAM2 = "https://github.com/facebookresearch/sam2/issues/460"
_COPY = (
    "keep a copy: y = f(x).clone(), or f = cudaguard.graph_safe(f); or compile with "
    "mode='max-autotune-no-cudagraphs'. cudagraph_mark_step_begin() does not help"
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
    is_sam2 = producer.rpartition(":")[0].endswith("position_encoding.py")
    return Finding(
        OVERWRITTEN,
        f"A later call of a compiled function with CUDA graphs overwrote a tensor{made}.",
        severity="error",
        consequence="torch notices this only in the first calls. Later the tensor silently holds "
        "the results of another call.",
        remedy="enable rule CG028. In SAM2 it is the position-encoding cache, so copying outputs "
        "does not help"
        if is_sam2
        else _COPY,
        links=(_LINK, _SAM2) if is_sam2 else (_LINK,),
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
        f"graph_safe does not copy tensors in the attributes of {kind}.",
        consequence="if there are any, a later call of the compiled function can overwrite them.",
        remedy="return them in a dictionary, list, tuple or dataclass, or copy them yourself",
        links=(_LINK,),
    )
