"""Carrying out what was decided, and telling what became of it: one module per kind of repair."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Protocol

    from cudaguard.errors import CudaGuardWarning
    from cudaguard.hook.journal import Journal
    from cudaguard.model import Finding
    from cudaguard.rules.registry import Registry

    class Engine(Protocol):
        """What repairs and detectors ask of `cudaguard.engine.Engine`."""

        mode: str
        registry: Registry
        journal: Journal
        touched: dict[str, None]
        deferred: list[str]

        def tell(
            self,
            finding: Finding,
            category: type[CudaGuardWarning],
            *,
            frame: FrameType | None = None,
        ) -> bool:
            """Record a finding and warn of it where that is wanted."""

        def log(self, text: str) -> None:
            """Write to the log that a repair has worked."""


REPAIRING = ("fix", "strict")  # modes
