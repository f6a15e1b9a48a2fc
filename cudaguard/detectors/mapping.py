"""What is mapped when, noted in the journal for whoever has to tell why a process died."""

from __future__ import annotations

from cudaguard.hook.caller import caller_frame, describe
from cudaguard.probe.mapped import mapped_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.hook.journal import Journal


class Mappings:
    """Notes each library before it is loaded, and what was mapped once it is.

    Args:
        journal: Gets the notes; asked for only while it is written to a file.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known = mapped_files()

    def begins(self, file: str, module: str = "") -> None:
        """Note that a library is about to be loaded.

        Args:
            file: As the loader is given it.
            module: For an extension module, its name.
        """
        self._look("")  # what came past us, or by a load that encloses this one
        details = {"module": module} if module else None
        self._journal.note("mapping", file, describe(caller_frame()), details)

    def ended(self, file: str) -> None:
        """Note that a library has been loaded, after whatever came with it."""
        self._look(file)
        self._journal.note("loaded", file)

    def _look(self, cause: str) -> None:
        now = mapped_files()
        for file in sorted(now - self._known):
            self._journal.note("mapped", file, details={"by": cause} if cause else None)
        self._known |= now
