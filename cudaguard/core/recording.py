"""What is mapped when and how imports end, noted in a journal that is written to a file."""

from __future__ import annotations

from cudaguard import system
from cudaguard.elf.process import mapped_files
from cudaguard.files import os
from cudaguard.hooks.caller import caller_frame, describe, importing
from cudaguard.system.modules import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec

    from cudaguard.core.journal import Journal
    from cudaguard.hooks.barrier import Close
    from cudaguard.system.loader_list import LoaderNews


class Recording:
    """Notes each library before it is loaded, what was mapped once it is, and how imports end.

    What `is_traced`, by `cudaguard trace`, notes what is there already as well.
    """

    def __init__(self, journal: Journal, *, is_traced: bool) -> None:
        self._journal, self._is_traced = journal, is_traced
        # The loader's own list is cheap to ask for news, once the detectors have brought it.
        self._news: LoaderNews | None = None
        self._known = set() if is_traced else set(mapped_files())

    def begins(self, file: str, module: str = "") -> None:
        """Note that a library is about to be loaded, or an extension module of some name."""
        self.look()  # what came past us, or by a load that encloses this one
        details: dict[str, object] = {"importing": importing()}
        if module:
            details["module"] = module
        self._journal.note("mapping", file, describe(caller_frame()), details)

    def ended(self, file: str) -> None:
        """Note that a library has been loaded, after whatever came with it."""
        self.look(file)
        self._journal.note("loaded", file)

    def import_ended(self, name: str, kind: str = "imported") -> None:
        """Note that an import has ended; traced, after what it mapped past us."""
        if self._is_traced:
            self.look()
        self._journal.note(kind, name)

    def note_failure(self, spec: ModuleSpec) -> Close:
        """Note it where an import fails (see `hooks.barrier.ImportCallbacks`)."""

        def close(error: BaseException | None) -> None:
            if error is not None:
                self.import_ended(spec.name, "failed")

        return close

    def look_until_the_end(self, also: Callable[[], None]) -> None:
        """Look now, and once more when the process ends, after `also`, who else has to look."""
        from atexit import register

        def end() -> None:
            also()
            self.look()
            self._journal.note("end", "")

        self.look()
        register(end)

    def window(self, spec: ModuleSpec) -> Close:
        """Note what the loading of an extension maps (see `hooks.barrier.ImportCallbacks`)."""
        file = spec.origin or ""
        self.begins(file, spec.name)

        def close(error: BaseException | None) -> None:
            if error is None:
                self.ended(file)
            else:
                self._journal.note("failed", file)

        return close

    def look(self, cause: str = "") -> None:
        """Note what is new; `cause` is the library that brought it, empty if nobody knows."""
        if self._news is None:
            # An import from here would end here again.
            news = peek(peek(system, "loader_list"), "LoaderNews")
            self._news = None if news is None else news()
        if self._news is None:
            now, is_whole = sorted(mapped_files()), True
        else:
            now = [os.path.realpath(name) for name in self._news.names() if os.sep in name]
            is_whole = self._news.is_whole
        new = [file for file in dict.fromkeys(now) if file not in self._known]
        if now and is_whole:
            self._known.clear()  # of what was unloaded
        self._known.update(now)
        for file in new:
            self._journal.note("mapped", file, details={"by": cause} if cause else None)
