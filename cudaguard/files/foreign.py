"""Whether an exception in our code is our own failure or one of the program.

Signal handlers, other threads (``PyThreadState_SetAsyncExc``), finders and audit hooks of the
program raise wherever we happen to be. What they raise is for the program: no ``except`` of ours
may take it for what we expect there. One that runs while a program is being looked at is written
``except own_errors(OSError):``.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType
    from typing import Any, TypeVar

    Error = TypeVar("Error", bound=BaseException)

_Frame: Any = type(sys._getframe())
# Past what a class makes of its attributes.
_traceback: Any = BaseException.__traceback__
_module: Any = type.__dict__["__module__"]
_GUARD = ("cudaguard", "_cudaguard_boot")
_SAY_NOTHING = (MemoryError, StopIteration, StopAsyncIteration)
_standard_library: frozenset[str] = getattr(sys, "stdlib_module_names", frozenset())


def _raise(error: BaseException) -> None:
    raise error


_RAISE = _raise.__code__.co_code[2 if sys.version_info < (3, 11) else 4]  # opcode of the statement


def must_propagate(error: BaseException) -> bool:
    """Return True for an error that has to reach the program; when in doubt, it has to.

    A failure of ours is of a class of Python's or ours, and came up in code of Python's or ours
    that no signal handler has run.
    """
    try:
        if not issubclass(type(error), Exception) or not is_known(_module.__get__(type(error))):
            return True
        traceback = _traceback.__get__(error)
        is_foreign = _first(traceback, is_known) is not None
        return is_foreign or _is_sent(error) or is_of_signal_handler(error)
    except Exception as second:
        is_foreign = not is_known(_module.__get__(type(second)))
        if is_foreign or _is_sent(second) or is_of_signal_handler(second):  # not raised by us
            raise
        return True


def own_errors(*kinds: type[Error]) -> tuple[type[Error], ...]:
    """Return `kinds` if the current exception is our own failure, else ``()``: it propagates."""
    error = sys.exc_info()[1]
    return () if error is None or (isinstance(error, kinds) and must_propagate(error)) else kinds


def program_errors(*kinds: type[Error]) -> tuple[type[Error], ...]:
    """Return `kinds` unless a signal handler or another thread has sent the current exception.

    For an ``except`` around code of the program that is called for our sake, as a log handler is.
    """
    error = sys.exc_info()[1]
    if error is None or is_of_signal_handler(error):
        return ()
    is_known_class = is_known(_module.__get__(type(error))) and not _is_sent(error)
    is_foreign = _first(_traceback.__get__(error), is_known) is not None
    return kinds if is_known_class or is_foreign else ()  # else a thread has sent it


def is_refusal(error: Exception) -> bool:
    """Return True if the program's code raised it, called by a function of Python (an audit hook).

    To be asked where that function was called.
    """
    below = _traceback.__get__(error).tb_next
    return _first(below, is_known) is not None and not is_of_signal_handler(error)


def is_of_signal_handler(error: BaseException) -> bool:
    """Return True if a signal handler of the program raised it, as for a time limit.

    It says nothing of the code it came up in, which must let it pass.
    """
    signal: Any = sys.modules.get("_signal")
    step = _traceback.__get__(error)
    if signal is None or _first(step, _is_ours) is None:  # no handler is ours
        return False
    codes = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    while step is not None:
        if step.tb_frame.f_code in codes or _is_called_as_handler(step.tb_frame):
            return True
        step = step.tb_next
    return False


def _is_sent(error: BaseException) -> bool:
    """Return True if another thread has sent it (``PyThreadState_SetAsyncExc``).

    It says nothing, and no statement raises it where it comes up; what is used up says nothing too.
    """
    if error.args or issubclass(type(error), _SAY_NOTHING):
        return False
    step = _traceback.__get__(error)
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    return step is not None and step.tb_frame.f_code.co_code[step.tb_lasti] != _RAISE


def standard_library() -> frozenset[str]:
    """Return the names of the modules that come with Python."""
    global _standard_library  # noqa: PLW0603  # once
    if not _standard_library:  # Python 3.9
        os = sys.modules["os"]  # by no import: whoever imports for us asks here
        folder = os.path.dirname(os.__file__)
        files = [*os.listdir(folder), *os.listdir(os.path.join(folder, "lib-dynload"))]
        names = (*sys.builtin_module_names, "_frozen_importlib", "_frozen_importlib_external")
        _standard_library = frozenset((*names, *(file.partition(".")[0] for file in files)))
    return _standard_library


def is_known(module: object) -> bool:
    """Return True if a module is Python's or ours, by its name."""
    if not isinstance(module, str):
        return False
    top = module.partition(".")[0]
    return top in _GUARD or top in (_standard_library or standard_library())


def _is_ours(module: object) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in _GUARD


def _first(step: TracebackType | None, is_passed: Callable[[object], bool]) -> TracebackType | None:
    """Return the first step in code of a module that is not to be passed over."""
    while step is not None and is_passed(step.tb_frame.f_globals.get("__name__")):
        step = step.tb_next
    return step


def _is_called_as_handler(frame: FrameType) -> bool:
    """Return True if its arguments are a number and a frame; a handler may have replaced them."""
    code = frame.f_code
    if code.co_argcount < 2 or is_known(frame.f_globals.get("__name__")):
        return False
    found = frame.f_locals
    values = [found.get(name) for name in code.co_varnames[: code.co_argcount]]
    return any(
        issubclass(type(number), int) and type(where) is _Frame
        for number, where in zip(values, values[1:])
    )


def _code_of(handler: Any) -> Any:
    """Return the code that a handler runs; None if it is not written in Python."""
    handler = getattr(handler, "func", handler)  # functools.partial
    if not hasattr(handler, "__code__"):  # an object that can be called
        handler = type(handler).__call__
    return getattr(handler, "__code__", None)
