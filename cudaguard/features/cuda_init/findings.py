"""Findings about the CUDA driver: who initialized it, whose contexts there are, what is late."""

from __future__ import annotations

import shlex

from cudaguard.core.findings import FIX, Kind, of_rule, sentence, switch_off
from cudaguard.core.table import github
from cudaguard.model import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudaguard.core.findings import Finding
    from cudaguard.core.rule import Rule
    from cudaguard.features.cuda_init.facts import Change, Expectation

_PAGE = "howto/cuda.md"
_FORKED = "'Cannot re-initialize CUDA in forked subprocess'."

INITIALIZED = Kind(
    "CG814",
    "CUDA was initialized",
    "ContextWarning",
    consequence="CUDA ignores changes of CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER from here on. "
    "Processes forked from this one cannot use CUDA.",
    remedy="set these variables before that line, and start CUDA workers with 'spawn' or "
    "'forkserver'",
    page=_PAGE,
)
CONTEXT = Kind(
    "CG815",
    "a CUDA context was created",
    "ContextWarning",
    consequence="The context takes memory on that device, in each process.",
    remedy="choose the device before the first use of CUDA, if it is the wrong one",
    page=_PAGE,
)
TWO_CONTEXTS = Kind(
    "CG816",
    "libraries use different CUDA contexts",
    "ContextWarning",
    consequence="Streams, events and memory of one context are invalid in the other: calls may "
    "fail with 'invalid resource handle', compute zeros, or crash at exit.",
    remedy="use the primary context (cuDevicePrimaryCtxRetain), or pop the context around calls "
    "to other libraries",
    page=_PAGE,
    links=github("NVIDIA/TensorRT/issues/4335 inducer/pycuda/issues/285"),
)
NO_CONTEXT = Kind(
    "CG817",
    "a CUDA context could not be created",
    "ContextWarning",
    consequence="Libraries create a context when they need one, and may fail in the same way.",
    remedy="correct what the error names, or request no context: context='none' in the call or "
    "the configuration file, or CUDAGUARD_CONTEXT=none",
    command="cudaguard doctor --deep --only CG913",
    page=_PAGE,
)
FORK = Kind(
    "CG818",
    "a forked process uses CUDA, which its parent had initialized",
    "ForkWarning",
    consequence=f"Every CUDA call fails in this process: 'initialization error', {_FORKED}",
    remedy="start workers with 'spawn' (multiprocessing.set_start_method('spawn'), "
    "DataLoader(..., multiprocessing_context='spawn')), or initialize CUDA after the fork",
    page="howto/fork.md",
    links=github("pytorch/pytorch/issues/17357"),
)
LATE_VARIABLE = Kind(
    "CG819",
    "an environment variable was set after it was read",
    "LateEnvironmentWarning",
    consequence="The new value has no effect in this process, only in processes started later.",
    remedy="set it in the shell that starts the program, or at the top of the program",
    page=_PAGE,
    links=github("pytorch/pytorch/issues/159641"),
)
NOT_UNTOUCHED = Kind(
    "CG822",
    "CUDA was used before a call that needs it unused",
    "ContextWarning",
    remedy="move that into the function that the workers run, or below if __name__ == "
    "'__main__'; in a notebook restart the kernel first",
    page=_PAGE,
    links=github("huggingface/accelerate/issues/1807 rapidsai/dask-cuda/issues/719"),
)


def said(change: Change, *, where: bool = False) -> str:
    """Return one clause: who did what, and on request where."""
    created = f"created a context on device {change.device}"
    what = "initialized CUDA" if change.kind == "initialized" else created
    return f"{_actor(change)} {what}" + (_at(change.where) if where else "")


def _actor(change: Change) -> str:
    return change.actor or "code that cudaguard did not watch"


def _at(where: str) -> str:
    return f" at {where}" if where else ""


_HOW = {
    "import": " while it was imported",
    "load": " by loading a library",
    "request": ", as requested",
    "before": " before cudaguard was installed",
    "": " since cudaguard last looked",
}


def _beginning(change: Change) -> str:
    """Return a clause as the beginning of a message; names stay as they are."""
    text = f"{said(change, where=True)}{_HOW[change.how]}"
    return text if change.actor else sentence(text)


def initialized(change: Change, link: str = "") -> Finding:
    """CuInit was called; `link` reports a program that broke by it, so that it is warned of."""
    if not link:
        return INITIALIZED.found(f"{_beginning(change)}.", severity="info")
    return INITIALIZED.found(
        f"{_beginning(change)}.",
        remedy=f"{INITIALIZED.remedy}; or silence this: {switch_off(INITIALIZED.id)}",
        links=(link,),
    )


def context_created(change: Change, devices: int, rank: int | None) -> Finding:
    """A primary context has become active; the local rank is None without a launcher."""
    # A rank beyond them has been given devices of its own.
    if rank is None or rank == change.device or devices <= max(rank, 1):
        return CONTEXT.found(f"{_beginning(change)}.", severity="info", consequence="", remedy="")
    return CONTEXT.found(
        f"{change.actor or sentence(_actor(change))} created a context on device {change.device}, "
        f"but this process is local rank {rank}.",
        f"{said(change, where=True)}{_HOW[change.how]}",
        f"{devices} devices are visible",
        consequence=f"Each such rank takes some hundreds of MiB on device {change.device}, and may "
        "compute there.",
        remedy=f"call torch.cuda.set_device({rank}) before that line, or give each rank one device "
        "with CUDA_VISIBLE_DEVICES",
        links=github("pytorch/pytorch/issues/135279"),
    )


def two_contexts(actor: str, where: str, device: int, *, beside_torch: bool) -> Finding:
    """An import, or if there is no actor something before one, has left its own context current."""
    if actor:
        what = f"{actor} made its own CUDA context current on device {device}"
    else:
        what = f"A CUDA context other than the primary one is current on device {device}"
    others: dict[str, str] = {}
    if not beside_torch:
        harmless = " Without torch or CuPy it is usually harmless."
        others = {"severity": "info", "consequence": TWO_CONTEXTS.consequence + harmless}
    if actor.startswith("pycuda"):
        others["remedy"] = (
            "use the primary context: `import pycuda.autoprimaryctx` instead of autoinit, or pop "
            "the context around calls to other libraries"
        )
    return TWO_CONTEXTS.found(
        f"{what}{_at(where)}{', beside torch' if beside_torch else ''}.",
        "torch and CuPy use the primary context; this is a different one",
        **others,
    )


def _remedy(first: Change, how: str = "torch") -> str:
    """Return what to do; where nobody was seen, it may have been a mere question to torch."""
    asked = "; or, if only torch.cuda.is_available() or torch.compile() came before, set "
    is_known = first.actor or not how.startswith("torch")
    return FORK.remedy + ("" if is_known else f"{asked}PYTORCH_NVML_BASED_CUDA_CHECK=1")


def used_after_fork(how: str, first: Change, where: str, error: str = "") -> Finding:
    """A forked child uses CUDA; `how` says what it does, as in "torch initializes CUDA"."""
    return FORK.found(
        f"{how}{_at(where)} in a process forked after CUDA was initialized.",
        f"in parent process {first.pid}: {said(first, where=True)}",
        error,
        remedy=_remedy(first, how),
    )


def worker_failed(first: Change, error: str) -> Finding:
    """A worker that was forked from this process, after `first`, has failed over CUDA."""
    return FORK.found(
        f"A forked worker used CUDA, but {_actor(first)} had initialized it{_at(first.where)}.",
        f"the worker: {error}",
        consequence=f"Every CUDA call fails in a forked worker: {_FORKED}",
        remedy=_remedy(first),
    )


def not_untouched(expected: Expectation, changes: Sequence[Change], where: str) -> Finding:
    """A library expects CUDA not to have been used where it is called, and it has been."""
    first, *later = changes
    return NOT_UNTOUCHED.found(
        f"{expected.module.partition('.')[0]} {expected.does}{_at(where)}: {said(first)} before.",
        f"{said(first, where=True)}{_HOW[first.how]}",
        *(said(change, where=True) for change in later),
        consequence=expected.consequence,
        remedy=expected.remedy or NOT_UNTOUCHED.remedy,
        links=expected.links,
    )


# Variables that somebody reads after all.
_AFTER_ALL = {
    "CUDA_VISIBLE_DEVICES": "CUDA keeps its devices; only processes started later get the new "
    "value. torch.cuda.device_count() may still follow it (it asks NVML), and then miscounts.",
    "backend:": "torch fails with 'Allocator backend parsed at runtime' if it initializes CUDA "
    "after that; else the new value has no effect in this process.",
}


def too_late_to_set(
    name: str, value: str | None, used: str, moment: str, where: str, first: Change | None
) -> Finding:
    """A variable was set to a value, or unset (None), when nobody reads it any more."""
    action = "unset" if value is None else f"set to {value!r}"
    reader, _, event = moment.partition(" is ")
    key = "backend:" if "backend:" in (value or "") else name
    return LATE_VARIABLE.found(
        f"{name} was {action} after {reader} was {event} and had read it.",
        f"probably changed at {where}" if where else "",
        f"this process uses {used}",
        said(first, where=True) if first is not None else "",
        consequence=_AFTER_ALL.get(key, LATE_VARIABLE.consequence),
        command=f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}",
    )


def default_missing(rule: Rule, name: str, value: str, target: str, where: str) -> Finding:
    """A variable that a rule has a default for is not set, and the mode forbids setting it."""
    return of_rule(
        rule,
        f"{target} was imported without {name}={value}.",
        f"imported at {where}" if where else "",
        remedy=f"set {name}={value} before the import, or {FIX}",
        command=f"export {name}={shlex.quote(value)}",
    )
