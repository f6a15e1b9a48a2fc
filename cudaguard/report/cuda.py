"""The wording of what is seen of the CUDA driver: initialised, contexts, whose and where."""

from __future__ import annotations

from cudaguard.model import Finding

INITIALISED, CONTEXT, FOREIGN, NO_CONTEXT = "CG814", "CG815", "CG816", "CG817"

OURSELVES = "cudaguard"


def said(kind: str, device: int, actor: str) -> str:
    """Return one clause for the journal: who did what."""
    what = "initialised CUDA" if kind == "initialised" else f"created a context on device {device}"
    return f"{_who(actor)} {what}"


def _who(actor: str) -> str:
    return actor or "something that is not watched"


def _at(where: str) -> str:
    return f" at {where}" if where else ""


def _while(actor: str) -> str:
    if actor == OURSELVES:
        return ", as asked"
    return " while it was imported" if actor else " between two watched imports"


def initialised(actor: str, where: str) -> Finding:
    """Somebody has called cuInit."""
    return Finding(
        INITIALISED,
        f"{_who(actor)} initialised CUDA{_at(where)}{_while(actor)}.",
        severity="info",
        consequence="from here on CUDA_VISIBLE_DEVICES and its like count no longer, and processes "
        "forked from this one cannot use CUDA.",
        remedy="set such variables before that line, and start workers that use CUDA by spawn or "
        "forkserver",
    )


def context_created(actor: str, where: str, device: int, devices: int, rank: int | None) -> Finding:
    """A primary context has become active.

    Args:
        actor: Who did it, or an empty string.
        where: The user's line.
        device: Its ordinal.
        devices: How many are visible.
        rank: The local rank of this process, None without a launcher.
    """
    what = f"{_who(actor)} created a CUDA context on device {device}{_at(where)}{_while(actor)}"
    if rank is None or rank == device or devices <= 1:
        return Finding(CONTEXT, f"{what}.", severity="info")
    return Finding(
        CONTEXT,
        f"{what}, and this process is local rank {rank}.",
        evidence=(f"{devices} devices are visible",),
        consequence="every rank that does this takes some hundreds of MiB on that device, and may "
        "compute there.",
        remedy=f"call torch.cuda.set_device({rank}) before that line, or have the launcher show "
        "each rank its own device only (CUDA_VISIBLE_DEVICES)",
        links=("https://github.com/pytorch/pytorch/issues/135279",),
    )


def foreign_context(actor: str, where: str, device: int, beside_torch: bool) -> Finding:
    """An import has left a context of its own current."""
    return Finding(
        FOREIGN,
        f"{actor} made a context of its own current on device {device}{_at(where)}.",
        evidence=("it is not the primary context, which torch and the CUDA runtime use",),
        consequence="streams, events and memory of the one are invalid in the other: 'invalid "
        "resource handle', zeros, crashes at exit." + ("" if beside_torch else " Beside torch or "
        "CuPy, that is; alone it is harmless."),
        remedy="use the primary context: `import pycuda.autoprimaryctx` in place of autoinit, or "
        "pop the context around calls to the others"
        if actor.startswith("pycuda")
        else "use the primary context (cuDevicePrimaryCtxRetain), or pop the context around calls "
        "to other libraries",
        severity="warn" if beside_torch else "info",
        links=(
            "https://github.com/NVIDIA/TensorRT/issues/4335",
            "https://github.com/inducer/pycuda/issues/285",
        ),
    )  # fmt: skip


def no_context(why: str, error: Exception) -> Finding:
    """A context that was asked for cannot be created."""
    return Finding(
        NO_CONTEXT,
        f"No CUDA context was created {why}.",
        evidence=(str(error),),
        consequence="the program goes on; libraries create contexts of their own when they need "
        "them.",
        remedy="see the evidence, or set CUDAGUARD_CONTEXT=none",
    )
