"""Carrying out what was decided, and telling what became of it: one module per kind of repair."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import FrameType
    from typing import Protocol

    from cudaguard.core.caller import UserLine
    from cudaguard.core.journal import Journal
    from cudaguard.core.registry import Registry
    from cudaguard.core.replace import Replaced
    from cudaguard.errors import CudaGuardWarning
    from cudaguard.model import Finding

    class Engine(Protocol):
        """What repairs and detectors ask of `cudaguard.core.engine.Engine`."""

        mode: str
        context: str
        home: int
        registry: Registry
        journal: Journal
        changes: dict[str, None]
        replaced: dict[str, Replaced]
        deferred: list[str]
        wanted_back: set[str]

        def tell(
            self,
            finding: Finding,
            category: type[CudaGuardWarning],
            *,
            frame: FrameType | UserLine | None = None,
            loud: bool | None = None,
        ) -> bool:
            """Record a finding and warn of it where that is wanted."""

        def own_use_of_cuda(self) -> AbstractContextManager[None]:
            """Have what happens to the CUDA driver inside the block attributed to us."""

        def replace(self, place: str, replaced: Replaced) -> None:
            """Take note of an attribute that was replaced, to be put back."""

        def broken(self, what: str, error: Exception) -> None:
            """Report a failure of the guard itself; never raises."""

        def log(self, text: str) -> None:
            """Write to the log that a repair has worked."""


REPAIRING = ("fix", "strict")  # modes
CONTEXT = "context"  # the word of rules for a CUDA context, among the modules that they need
