"""``sys.excepthook``: errors that end the program, looked at before they are printed.

Put up under ``cudaguard run``, and once a load was refused, in case that ends the program.
"""

from __future__ import annotations

import sys

from cudaguard.files import ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


class ErrorHook:
    """Stands before the hook that was there, which then does what it does.

    Args:
        look: Is handed each error; must not raise.
    """

    def __init__(self, look: Callable[[BaseException], None]) -> None:
        self.look = look
        self.is_wanted = False  # whenever the guard is up
        self._original = sys.excepthook
        self._is_in_line = False  # under a later hook, perhaps
        self.is_up = False

    def put_up(self) -> None:
        """Look at errors from now on."""
        if self.is_up:
            return
        self.is_up = True
        if not self._is_in_line:  # or the two would call each other for ever
            self._original, sys.excepthook = sys.excepthook, self._hook
            self._is_in_line = True

    def take_down(self) -> None:
        """Put the hook back that was there; under a later one ours stays and passes through."""
        self.is_up = False
        if sys.excepthook == self._hook:
            sys.excepthook = self._original
            self._is_in_line = False

    def _hook(
        self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        try:
            if self.is_up:
                self.look(error)
        except ours(Exception):  # the error that ends the program is to be told
            pass
        self._original(kind, error, traceback)
