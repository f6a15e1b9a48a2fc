"""Sees that a library put a copy of other people's symbols into the global scope.

Each family of symbols has a few names that tell (`cudaguard.system.symbol_families`). Whenever a
library was loaded, their owners are compared with those of the last look; nothing else is read.
"""

from __future__ import annotations

from cudaguard.elf.symbols import GlobalScope
from cudaguard.system.symbol_families import FAMILIES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.core.detection import NativeLoad
    from cudaguard.core.dispatch import Dispatch

CANARIES: tuple[tuple[str, str], ...] = tuple(
    (name, key) for key, family in FAMILIES.items() for name in family.canaries
)
_NAMES = tuple(name.encode() for name, _ in CANARIES)


class ScopeDetector:
    """Compares where the canary names are with where they were at the last look.

    Args:
        core: Is told.
    """

    def __init__(self, core: Dispatch) -> None:
        self._core = core
        self._scope = GlobalScope()
        self._addresses = [0] * len(_NAMES)

    def begin(self, since: str) -> None:
        """Look for the first time.

        Args:
            since: Why what it finds was not seen to come: ``guard`` or ``ctypes``, see
                `cudaguard.features.symbol_scope.messages.hijack`.
        """
        self._look(None, since)

    def before_load(self) -> None:
        """Look at what has moved past us."""
        self._look(None, "unseen")

    def loaded(self, load: NativeLoad) -> None:
        """Look at what a load has moved."""
        self._look(load, "")

    def _look(self, load: NativeLoad | None, since: str) -> None:
        """Look once, and tell of what has moved.

        Raises:
            ImportOrderError: in `strict`, from an import.
        """
        before, now = self._addresses, self._scope.addresses(_NAMES)
        if now == before:
            return
        self._addresses = now
        owner = self._scope.owner
        moved = [
            (name, family, owner(is_), owner(was))
            for (name, family), was, is_ in zip(CANARIES, before, now)
            if is_ and is_ != was
        ]
        if any(new for _, _, new, _ in moved):  # else they went to the program itself
            from cudaguard.features.symbol_scope.detector.hijack import judge

            judge(self._core, moved, load, since)
