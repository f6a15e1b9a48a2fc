"""What the guard of this process is doing: the rules in force, and a snapshot of everything."""

from __future__ import annotations

from cudaguard.config import MODE_VARIABLE
from cudaguard.core.lifecycle import activation
from cudaguard.model import Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.model import Rule


def active_rules() -> tuple[Rule, ...]:
    """Return the rules in force; without a guard, those that `install` would put in force."""
    is_up = activation.is_up
    return (activation.engine.registry if is_up else activation.registry_if_installed()).rules


def status() -> Status:
    """Return a snapshot of the guard. Looking touches nothing."""
    engine = activation.engine
    is_up = activation.is_up
    if is_up:
        from cudaguard.core.hindsight import record_bypassed

        record_bypassed(engine)
    exported = (f"os.environ[{MODE_VARIABLE!r}]",) if activation.is_exported else ()
    return Status(
        engine.mode,
        watched=sorted(engine.finder.watched),
        events=engine.journal.events,
        findings=tuple(engine.channel.findings),
        rules=engine.registry.rules if is_up else (),
        changes=(*engine.in_place(), *activation.requested, *exported, *engine.changes),
    )
