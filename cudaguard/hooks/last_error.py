"""The error that ended the program, looked at while the interpreter goes down.

No hook is replaced: PyQt, `code.InteractiveInterpreter` and the backport `exceptiongroup` ask
whether `sys.excepthook` is Python's own, and do something else if it is not. Python sets
`sys.last_value` before it calls the hook. Errors that end a thread only are not looked at.
"""

from __future__ import annotations

import sys

from cudaguard.files import own_errors
from cudaguard.hooks.caller import is_outermost
from cudaguard.kernel import TRACEBACK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class LastError:
    """Looks at the last error once, at exit; at None if the program ends without one."""

    def __init__(self, on_end: Callable[[BaseException | None], None]) -> None:
        self.on_end = on_end
        self.is_wanted = False  # whenever the guard is up
        self.is_installed = False
        self._is_registered = False

    def install(self) -> None:
        """Look at the error that ends the program, if one does."""
        self.is_installed = True
        if not self._is_registered:
            from atexit import register

            self._is_registered = True
            register(self._look_at_last)

    def uninstall(self) -> None:
        """Look at none."""
        self.is_installed = False

    def _look_at_last(self) -> None:
        try:
            error = vars(sys).get("last_value")
            trace = TRACEBACK.__get__(error) if isinstance(error, BaseException) else None
            # Consoles, debuggers and pytest set it as well, and go on.
            has_ended = trace and not hasattr(sys, "ps1") and is_outermost(trace.tb_frame)
            if self.is_installed:
                self.on_end(error if has_ended else None)
        except own_errors(Exception):  # whatever else happens at exit has to happen
            return
