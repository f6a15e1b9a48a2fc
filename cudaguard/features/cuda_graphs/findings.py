"""What is found of CUDA graphs: outputs that later calls overwrite."""

from __future__ import annotations

from cudaguard.core.findings import Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.model import Finding

COPIED, WITHOUT_GRAPHS = "copied", "compiled without CUDA graphs"
_LINK = "https://github.com/pytorch/pytorch/issues/122192"
_SAM2 = "https://github.com/facebookresearch/sam2/issues/460"
_COPY = (
    "keep a copy: y = f(x).clone(), or f = cudaguard.graph_safe(f); or compile with "
    "mode='max-autotune-no-cudagraphs'. cudagraph_mark_step_begin() does not help"
)

OVERWRITTEN = Kind(
    "CG851",
    "the output of a CUDA graph was read after it was overwritten",
    "GraphWarning",
    severity="error",
    consequence="torch notices this only in the first calls. Later the tensor silently holds "
    "the results of another call.",
    remedy=_COPY,
    links=(_LINK,),
)
STALE = Kind(
    "CG853",
    "a later call overwrote a result that is still held",
    "GraphWarning",
    consequence="the next read of it returns the values of another call.",
    remedy=_COPY,
    page="howto/graphs.md",
    links=(_LINK,),
)
NOT_COPIED = Kind(
    "CG854",
    "a result contains tensors that are not copied",
    "GraphWarning",
    consequence="if there are any, a later call of the compiled function can overwrite them.",
    remedy="return them in a dictionary, list, tuple or dataclass, or copy them yourself",
    page="howto/graphs.md",
    links=(_LINK,),
)


def overwritten(producer: str, function: str, *, is_gradient: bool) -> Finding:
    """The output of a CUDA graph was read that torch knows to be overwritten.

    Args:
        producer: ``file:line`` of the code that made the tensor; may be empty.
        function: The function that this line is in.
        is_gradient: True if it is a gradient.
    """
    made = f" that {function or 'a function'} made at {producer}" if producer else ""
    what = "A later call of a compiled function with CUDA graphs overwrote a"
    if is_gradient:
        return OVERWRITTEN.found(
            f"{what} gradient{made}.",
            consequence="the gradient holds the values of another call.",
            remedy="call optimizer.zero_grad(set_to_none=True) before each backward, or allocate "
            ".grad before the first compiled one",
        )
    if producer.rpartition(":")[0].endswith("position_encoding.py"):
        return OVERWRITTEN.found(
            f"{what} tensor{made}.",
            remedy="enable rule CG028. In SAM2 it is the position-encoding cache, so copying "
            "outputs does not help",
            links=(_LINK, _SAM2),
        )
    return OVERWRITTEN.found(f"{what} tensor{made}.")


def stale(made_at: str, shape: tuple[int, ...], overwritten_at: str) -> Finding:
    """A result of the call at one line is still held, and the call at another overwrote it."""
    return STALE.found(
        f"The call at {overwritten_at} overwrote the result {shape} of the call at {made_at}, "
        "which the program still holds."
    )


def not_copied(kind: str) -> Finding:
    """A result has tensors in objects that are not looked into."""
    return NOT_COPIED.found(f"graph_safe does not copy tensors in the attributes of {kind}.")
