"""The wording of what is seen of the CUDA driver: initialized, contexts, whose and where."""

from __future__ import annotations

import shlex

from cudaguard.core.findings import FIX, switch_off
from cudaguard.model import Finding, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudaguard.features.cuda_init.expectations import Expectation
    from cudaguard.model import Rule


EXPECTED = "CG822"
INITIALIZED, CONTEXT, FOREIGN, NO_CONTEXT = "CG814", "CG815", "CG816", "CG817"
FORK, LATCHED = "CG818", "CG819"

OURSELVES = "cudaguard"


class Change(Record):
    """One thing that happened to the driver of this process.

    Args:
        kind: ``initialized`` or ``context``.
        device: Ordinal of the device that got a context; -1 for ``initialized``.
        actor: The module that was being imported, or that loaded a library; empty if it happened
            outside of all that is watched.
        how: ``import``, ``load``, ``request`` (by the guard itself), ``before`` (the guard could
            look) or, without an actor, empty.
        where: ``file:line`` of the user's code behind it; empty with the actor.
        pid: The process.
        thread: ``threading.get_ident()`` of the thread that noticed.
    """

    kind: str
    device: int
    actor: str
    how: str
    where: str
    pid: int
    thread: int


def said(change: Change, *, where: bool = False) -> str:
    """Return one clause: who did what, and on request where."""
    if change.kind == "initialized":
        what = "initialized CUDA"
    else:
        what = f"created a context on device {change.device}"
    return f"{_who(change.actor)} {what}" + (_at(change.where) if where else "")


def _who(actor: str) -> str:
    return actor or "code that cudaguard did not watch"


def _first(text: str, change: Change) -> str:
    """Return a clause as the beginning of a message; names stay as they are."""
    return text if change.actor else f"{text[:1].upper()}{text[1:]}"


def _at(where: str) -> str:
    return f" at {where}" if where else ""


_HOW = {
    "import": " while it was imported",
    "load": " by loading a library",
    "request": ", as requested",
    "before": " before cudaguard was installed",
    "": " since cudaguard last looked",
}


def initialized(change: Change, link: str = "") -> Finding:
    """Somebody has called cuInit.

    Args:
        change: Who did it, and where.
        link: A report of a program that broke by it: then it is to be warned of.
    """
    return Finding(
        INITIALIZED,
        f"{_first(said(change, where=True), change)}{_HOW[change.how]}.",
        severity="warning" if link else "info",
        consequence="changes of CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER have no effect from "
        "here on. Processes forked from this one cannot use CUDA.",
        remedy="set these variables before that line, and start CUDA workers with 'spawn' or "
        "'forkserver'" + (f"; or silence this: {switch_off(INITIALIZED)}" if link else ""),
        links=(link,) if link else (),
    )


def context_created(change: Change, devices: int, rank: int | None) -> Finding:
    """A primary context has become active.

    Args:
        change: Who did it, where, and on which device.
        devices: How many are visible.
        rank: The local rank of this process, None without a launcher.
    """
    what = f"{_first(said(change, where=True), change)}{_HOW[change.how]}"
    # A rank beyond them has been given devices of its own.
    if rank is None or rank == change.device or devices <= max(rank, 1):
        return Finding(CONTEXT, f"{what}.", severity="info")
    return Finding(
        CONTEXT,
        f"{what}, but this process is local rank {rank}.",
        evidence=(f"{devices} devices are visible",),
        consequence=f"each such rank takes some hundreds of MiB on device {change.device}, and may "
        "compute there.",
        remedy=f"call torch.cuda.set_device({rank}) before that line, or give each rank one device "
        "with CUDA_VISIBLE_DEVICES",
        links=("https://github.com/pytorch/pytorch/issues/135279",),
    )


def foreign_context(actor: str, where: str, device: int, beside_torch: bool) -> Finding:
    """An import, or if there is no actor something before one, has left its own context current."""
    if actor:
        what = f"{actor} made its own CUDA context current on device {device}{_at(where)}"
    else:
        what = (
            f"A CUDA context other than the primary one is current on device {device}{_at(where)}"
        )
    return Finding(
        FOREIGN,
        f"{what}{', beside torch' if beside_torch else ''}.",
        evidence=("torch and CuPy are made for the primary context, and this is another one",),
        consequence="streams, events and memory of one context are invalid in the other: calls may "
        "fail with 'invalid resource handle', compute zeros, or crash at exit."
        + ("" if beside_torch else " Without torch or CuPy it is usually harmless."),
        remedy="use the primary context: `import pycuda.autoprimaryctx` instead of autoinit, or "
        "pop the context around calls to other libraries"
        if actor.startswith("pycuda")
        else "use the primary context (cuDevicePrimaryCtxRetain), or pop the context around calls "
        "to other libraries",
        severity="warning" if beside_torch else "info",
        links=(
            "https://github.com/NVIDIA/TensorRT/issues/4335",
            "https://github.com/inducer/pycuda/issues/285",
        ),
    )  # fmt: skip


def no_context(why: str, error: Exception) -> Finding:
    """A context that was asked for cannot be created."""
    return Finding(
        NO_CONTEXT,
        f"cudaguard could not create a CUDA context {why}.",
        evidence=(str(error),),
        consequence="libraries create a context when they need one, and may fail in the same way.",
        remedy='fix the error above, or request no context: context="none" in the call, '
        "CUDAGUARD_CONTEXT=none, or `context` in the configuration file",
        command="cudaguard doctor --deep --only CG913",
    )


_FORKED_REMEDY = (
    "start workers with 'spawn' (multiprocessing.set_start_method('spawn'), "
    "DataLoader(..., multiprocessing_context='spawn')), or initialize CUDA after the fork"
)


def used_after_fork(how: str, first: Change, where: str, error: str = "") -> Finding:
    """A forked child uses CUDA.

    Args:
        how: What it does, as in "torch initializes CUDA".
        first: Who initialized CUDA in its parent.
        where: The line that uses it.
        error: What a library says of it.
    """
    return Finding(
        FORK,
        f"{how}{_at(where)} in a process forked after CUDA was initialized.",
        evidence=(
            f"in parent process {first.pid}: {said(first, where=True)}",
            *((error,) if error else ()),
        ),
        consequence="every CUDA call fails in this process: 'initialization error', 'Cannot "
        "re-initialize CUDA in forked subprocess'.",
        remedy=_FORKED_REMEDY,
        links=("https://github.com/pytorch/pytorch/issues/17357",),
    )


def worker_failed(first: Change, error: str) -> Finding:
    """A worker that was forked from this process has failed over CUDA.

    Args:
        first: Who initialized CUDA in this process.
        error: What the worker says of it.
    """
    return Finding(
        FORK,
        f"A forked worker used CUDA, which {_who(first.actor)} had initialized"
        f"{_at(first.where)} before the fork.",
        evidence=(f"the worker: {error}",),
        consequence="every CUDA call fails in a forked worker: 'Cannot re-initialize CUDA in "
        "forked subprocess'.",
        remedy=_FORKED_REMEDY,
        links=("https://github.com/pytorch/pytorch/issues/17357",),
    )


def not_untouched(one: Expectation, changes: Sequence[Change], where: str) -> Finding:
    """A library expects CUDA not to have been used yet, and it has been.

    Args:
        one: Where it expects that.
        changes: What was done to the driver.
        where: The line that calls it.
    """
    first = changes[0]
    library = one.module.partition(".")[0]
    return Finding(
        EXPECTED,
        f"{library} {one.does}{_at(where)}: {said(first, where=True)}{_HOW[first.how]}.",
        evidence=tuple(said(change, where=True) for change in changes[1:]),
        consequence=one.consequence,
        remedy=one.remedy,
        links=one.links,
    )


def too_late_to_set(
    name: str, value: str | None, used: str, moment: str, where: str, first: Change | None
) -> Finding:
    """A variable was set when nobody reads it any more.

    Args:
        name: The variable.
        value: What it is set to; None for unset.
        used: What this process uses, in words.
        moment: When it was read.
        where: The line that probably sets it.
        first: Who initialized CUDA, where that is the moment.
    """
    action = "unset" if value is None else f"set to {value!r}"
    reader, _, event = moment.partition(" is ")
    return Finding(
        LATCHED,
        f"{name} was {action}{f' (probably at {where})' if where else ''} after {reader} was "
        f"{event} and had read it.",
        evidence=(
            f"this process uses {used}",
            *((said(first, where=True),) if first is not None else ()),
        ),
        consequence="the new value has no effect in this process, only in processes started later.",
        remedy="set it in the shell that starts the program, or at the top of the program",
        command=f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}",
        links=("https://github.com/pytorch/pytorch/issues/159641",),
    )


def default_missing(rule: Rule, name: str, value: str, target: str, where: str) -> Finding:
    """A variable that a rule has a default for is not set, and the mode forbids setting it."""
    return Finding(
        rule.id,
        f"{target} was imported without {name}={value}.",
        rule=rule.id,
        evidence=(f"imported at {where}",) if where else (),
        consequence=rule.why,
        remedy=f"set {name}={value} before the import, or {FIX}",
        command=f"export {name}={shlex.quote(value)}",
        links=rule.links,
    )
