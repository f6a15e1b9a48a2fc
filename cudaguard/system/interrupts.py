"""Errors that interrupt what is going on, rather than come of it."""

from __future__ import annotations

import sys

from cudaguard.system.modules import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def is_of_signal_handler(error: BaseException) -> bool:
    """Was it raised by a function that the program has set for a signal, as for a time limit?

    It says nothing of the code it came up in, which must let it pass.
    """
    signal = sys.modules.get("signal")
    known, handler_of = peek(signal, "valid_signals"), peek(signal, "getsignal")
    if known is None or handler_of is None:  # not imported, or half imported
        return False
    codes = {_code_of(handler_of(number)) for number in known()}
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code in codes:
            return True
        step = step.tb_next
    return False


def _code_of(handler: Any) -> Any:
    """Return the code that a handler runs; None if it is not written in Python."""
    handler = getattr(handler, "func", handler)  # functools.partial
    if not hasattr(handler, "__code__"):  # an object that can be called
        handler = type(handler).__call__
    return getattr(handler, "__code__", None)
