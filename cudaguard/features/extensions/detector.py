"""Loads that the dynamic loader has refused: explained, and told of only where the error matters.

A program that tries libraries one after the other and goes on is healthy, and hears nothing. What
would be said is kept as text, without the error and its frames, and is told once that error, or
one that quotes it or shows it in its traceback, ends the program, leaves a guarded block or fails
the import of a watched module.
"""

from __future__ import annotations

import sys

from cudaguard.core.excepthook import ErrorHook
from cudaguard.core.loader import ON_PURPOSE, print_instead
from cudaguard.errors import ExtensionWarning
from cudaguard.files.calls import os
from cudaguard.files.foreign import ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.machinery import ModuleSpec
    from typing import Protocol

    from cudaguard.core import repair as repairs
    from cudaguard.features.extensions.repair import Refusal

    class Engine(repairs.Engine, Protocol):
        """What is asked of `cudaguard.core.engine.Engine`."""

        errors: ErrorHook | None


NOT_FOUND = ": cannot open shared object file"
_SEARCH_PATH = "LD_LIBRARY_PATH"
_MOST = 32  # refusals that are kept


class Refusals:
    """The refusals of this process that nothing has been told of.

    Args:
        engine: Is told.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._kept: dict[str, Refusal] = {}  # by the loader's words
        self._hook: ErrorHook | None = None

    def load_failed(self, error: Exception, library: str) -> None:
        """Look why a library was refused (see `core.loader.Host`).

        It may have been meant to be found by a variable that was set too late. Of extensions for
        torch that are loaded by their path (``torch.ops.load_library``), the reason is kept.
        """
        missing, found, _ = str(error).partition(NOT_FOUND)
        said = os.environ.get(_SEARCH_PATH, "")
        if found and said:
            from cudaguard.features.import_order.detector import tell_of_late_path

            tell_of_late_path(self._engine, missing, said)
        if os.sep in library and sys.platform.startswith("linux"):
            from cudaguard.features.extensions.repair import refused

            self._keep(refused(library, error))

    def explained(self, spec: ModuleSpec, error: ImportError) -> ImportError | None:
        """Return an error that says why an extension was refused (see `core.loader.Host`)."""
        if not sys.platform.startswith("linux"):
            return None
        try:
            from cudaguard.features.extensions.repair import explained
        except ours(ImportError):  # a Python without ctypes has nothing to look with
            return None
        refusal, better = explained(self._engine, spec, error)
        self._keep(refusal)
        return better

    def _keep(self, refusal: Refusal | None) -> None:
        if refusal is None:
            return
        self._kept[refusal.said] = refusal
        while len(self._kept) > _MOST:
            self._kept.pop(next(iter(self._kept)), None)
        is_heard = self._is_loud(refusal) or self._engine.journal.is_written
        if is_heard and self._engine.errors is None:  # under `cudaguard run` there is one
            self._hook = self._engine.errors = ErrorHook(self.error_passes)
            self._hook.put_up()

    def error_passes(self, error: BaseException) -> None:
        """Tell of the refusals that an error is about; never raises. Not of KeyboardInterrupt."""
        if not self._kept or not isinstance(error, Exception):
            return
        try:
            from cudaguard.core.known_errors import text_of

            texts = "\n".join(map(text_of, _shown_with(error)))
            for said in [said for said in list(self._kept) if said in texts]:
                self._tell(self._kept.pop(said))
        except ours(Exception) as failure:
            self._engine.broken("looking at an error", failure)

    def _is_loud(self, refusal: Refusal) -> bool:
        # In `fix` an ExtensionError says it itself.
        mode = self._engine.mode
        return mode in ("warn", "strict") if refusal.is_import else mode != "observe"

    def _tell(self, refusal: Refusal) -> None:
        loud = self._is_loud(refusal)
        try:
            self._engine.tell(refusal.finding, ExtensionWarning, frame=refusal.place, loud=loud)
        except ON_PURPOSE as warning:  # the program's own error is the one to be raised
            print_instead(warning)

    def forget(self) -> None:
        """Forget them, and put ``sys.excepthook`` back."""
        self._kept.clear()
        if self._hook is not None:
            self._hook.take_down()
            if self._engine.errors is self._hook:
                self._engine.errors = None
            self._hook = None


def _shown_with(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors that a traceback of this one shows."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        led = None if current.__suppress_context__ else current.__context__
        current = current.__cause__ or led
