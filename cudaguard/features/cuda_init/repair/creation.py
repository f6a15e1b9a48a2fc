"""CUDA contexts: created on request, by setting, or because a rule needs one."""

from __future__ import annotations

import os

from cudaguard.core.caller import caller_frame, describe
from cudaguard.core.repair import REPAIRING
from cudaguard.errors import ContextError, ContextWarning
from cudaguard.features.cuda_init import messages as wording
from cudaguard.features.cuda_init.repair.context import create_context

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.core.repair import Engine
    from cudaguard.features.cuda_init.devices import ContextHandle


def create(engine: Engine, device: int | str | None, *, is_asked_for: bool = True) -> ContextHandle:
    """Create a context and take note of it.

    Args:
        engine: Is told.
        device: As for `cudaguard.create_context`.
        is_asked_for: Did the program name this device?

    Raises:
        ContextError: It cannot be created.
    """
    with engine.own_use_of_cuda():
        handle = create_context(device, is_asked_for=is_asked_for)
    entry = f"CUDA context on device {handle.device.ordinal} ({handle.device.name}) (stays)"
    if entry not in engine.changes:
        engine.changes[entry] = None
        engine.journal.note("repair", entry, describe(caller_frame()))
        engine.log(f"created: {entry}")
    return handle


def create_as_set(engine: Engine, device: str) -> None:
    """Create the context that a setting asks for; one that cannot be created is told of."""
    if engine.mode in REPAIRING:
        _try(engine, device, "as `context` asks", is_asked_for=True)


def create_for_rule(engine: Engine, rule: str, target: str) -> None:
    """Create the context that a rule needs before a module, where the setting allows it."""
    if engine.mode not in REPAIRING or engine.context == "none":
        return
    device = None if engine.context == "auto" else engine.context
    if os.getpid() != engine.home:
        # A worker that was forked may never use CUDA, and each context costs memory.
        return
    _try(engine, device, f"before {target}, as rule {rule} asks", is_asked_for=device is not None)


def _try(engine: Engine, device: str | None, why: str, *, is_asked_for: bool) -> None:
    try:
        create(engine, device, is_asked_for=is_asked_for)
    except ContextError as error:
        finding = wording.no_context(why, error)
        if engine.tell(finding, ContextWarning, frame=caller_frame()) and engine.mode == "strict":
            engine.deferred.append(f"{finding.what} {error}")
