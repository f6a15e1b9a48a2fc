"""What the guard of this process is doing: the rules in force, and a snapshot of everything."""

from __future__ import annotations

from cudaguard.core.lifecycle import activation
from cudaguard.model import Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.model import Rule


def active_rules() -> tuple[Rule, ...]:
    """Return the rules in force; without a guard, those that `install` would put in force."""
    is_up = activation.is_up
    return (activation.core.registry if is_up else activation.registry_if_installed()).rules


def status() -> Status:
    """Return a snapshot of the guard. Looking touches nothing."""
    core = activation.core
    is_up = activation.is_up
    if is_up:
        from cudaguard.core.late_imports import record_bypassed

        record_bypassed(core)
    return Status(
        core.reporter.mode,
        woken_by=activation.woken_by if is_up else "",
        watched=tuple(sorted(core.kernel.watched)) if is_up else (),
        events=core.journal.events,
        findings=tuple(core.reporter.channel.findings),
        rules=core.registry.rules if is_up else (),
        changes=(*activation.in_place(), *core.reporter.changes),
    )
