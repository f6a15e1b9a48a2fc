"""CUDA contexts: created on request, by setting, or because a rule needs one."""

from __future__ import annotations

from cudaguard.core.caller import caller_frame
from cudaguard.core.reports import Later
from cudaguard.errors import ContextError
from cudaguard.features.cuda_init import messages as wording
from cudaguard.features.cuda_init.detector.contexts import CudaDetector
from cudaguard.features.cuda_init.repair.context import create_context
from cudaguard.files import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.core.dispatch import Dispatch
    from cudaguard.features.cuda_init.devices import ContextHandle

_VERB = "create_context"


def create(core: Dispatch, device: int | str | None, *, is_asked_for: bool = True) -> ContextHandle:
    """Create a context and take note of it.

    Args:
        core: Is told.
        device: As for `cudaguard.create_context`.
        is_asked_for: True if the program named this device.

    Raises:
        ContextError: It cannot be created.
    """
    core.look()
    detector = core.detection.made(CudaDetector)
    if detector is None:
        handle = create_context(device, is_asked_for=is_asked_for)
    else:
        with detector.own_use():  # what happens to the driver is attributed to us
            handle = create_context(device, is_asked_for=is_asked_for)
    subject = f"CUDA context on device {handle.device.ordinal} ({handle.device.name})"
    if core.reporter.repair_of(subject) is None:
        core.reporter.repaired("", _VERB, subject, "created", frame=caller_frame())
    return handle


def prepare(core: Dispatch, rule: str, target: str, device: str = "") -> None:
    """Create a context as a prerequisite, where the setting allows it; one that fails is told of.

    Args:
        core: Knows the setting, and is told.
        rule: Id of the rule that needs one; empty where the setting itself asks for it.
        target: The module that it is needed before.
        device: The device that the setting asks for; empty for a rule.
    """
    if not device:
        # A worker that was forked may never use CUDA, and each context costs memory.
        if core.context == "none" or os.getpid() != core.reporter.home:
            return
        device = "" if core.context == "auto" else core.context
    why = f"before {target}, as rule {rule} asks" if rule else "as `context` asks"
    try:
        create(core, device or None, is_asked_for=bool(device))
    except ContextError as error:
        finding = wording.no_context(why, error)
        core.reporter.found(finding, caller_frame(), stop=Later(f"{finding.what} {error}"))
