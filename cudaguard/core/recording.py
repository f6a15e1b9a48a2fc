"""What the journal tells besides: libraries and imports from begin to end, while it is written."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec

    from cudaguard.core.barrier import Close
    from cudaguard.core.journal import Journal
    from cudaguard.core.mapping import Mappings


class Recording:
    """Notes what is mapped and how imports end.

    Args:
        journal: Gets the notes; asked for only while it is written to a file.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._mappings: Mappings | None = None
        self.is_traced = False  # by `cudaguard trace`

    @property
    def mappings(self) -> Mappings:
        """What was mapped so far; made when it is first asked for."""
        if self._mappings is None:
            from cudaguard.core.mapping import Mappings

            self._mappings = Mappings(self._journal, is_whole=self.is_traced)
        return self._mappings

    def begin_trace(self, also: Callable[[], None]) -> None:
        """Note all that is mapped, by whatever import, to the end of the process.

        Args:
            also: Called before the last look: who else has to look.
        """
        self.is_traced = True
        self.mappings.look_until_the_end(also)

    def import_ended(self, name: str, kind: str = "imported") -> None:
        """Note that an import has ended; traced, after what it mapped past us."""
        if self.is_traced:
            self.mappings.look()
        self._journal.note(kind, name)

    def note_failure(self, spec: ModuleSpec) -> Close:
        """Note it where an import fails (see `core.barrier.Slots`)."""

        def close(error: BaseException | None) -> None:
            if error is not None:
                self.import_ended(spec.name, "failed")

        return close
