"""The barrier between failures of the guard and the program: what is ours is told and swallowed.

Each hook calls what is ours behind it. The function that is hooked is called outside of it, once,
whatever becomes of us. What the program raises while we look reaches the program, and so does what
is raised on purpose. Whose an error is, is judged in `cudaguard.files`.
"""

from __future__ import annotations

import sys

from cudaguard.errors import CudaGuardError, CudaGuardWarning
from cudaguard.files import is_refusal, must_propagate, program_errors, standard_library
from cudaguard.hooks import own_imports
from cudaguard.hooks.caller import of_import_system
from cudaguard.model import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    Host = Any  # the `Dispatch` of the core, which lies above

    Close = Callable[[BaseException | None], None]

own_imports.is_refusal, own_imports.standard_library = is_refusal, standard_library
# Raised by callbacks on purpose (`strict`, or a warning the user turned into an error).
ON_PURPOSE = (CudaGuardError, CudaGuardWarning)


def is_own_failure(error: BaseException) -> bool:
    """Return True for a failure of the guard; any other error is to be raised."""
    return not issubclass(type(error), ON_PURPOSE) and not must_propagate(error)


def swallowed(host: Host, what: str, error: BaseException) -> bool:
    """Return True for a failure of ours, once it is told; any other error is to be raised."""
    try:
        if not is_own_failure(error):
            return False
        host.broken(what, error)
    except Exception as second:
        if must_propagate(second):
            raise
    return True


def barrier(what: str, default: Any = None) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator for methods that swallows failures of ours; the object's host is told."""

    def decorate(method: Callable[..., Any]) -> Any:
        @of_import_system
        def behind_barrier(self: Any, *args: object) -> Any:
            return ask(self.host, what, method, self, *args, default=default)

        return behind_barrier

    return decorate


def ask(
    host: Host,
    what: str,
    question: Callable[..., Any],
    *args: object,
    default: Any = None,
    prints: bool = False,
) -> Any:
    """Return what the host answers; `default` if a failure of ours keeps it from that.

    Where nothing may be raised on purpose it `prints` that: code that loads a library expects
    the loader's error only, and an error of the program's own is the one to be raised.
    """
    try:
        return question(*args)
    except BaseException as error:
        if prints and issubclass(type(error), ON_PURPOSE):
            print_instead(error)
        elif not swallowed(host, what, error):
            raise
    return default


def print_instead(warning: BaseException) -> None:
    """Print a warning that the user's filters make an error, where none may be raised."""
    try:
        if sys.stderr is not None:
            print(f"{type(warning).__name__}: {warning}", file=sys.stderr)
    except program_errors(Exception):  # nobody can be told
        return


# --- Callbacks around an import -------------------------------------------------------------------


class ImportCallbacks(Record):
    """Callbacks around the import of one module."""

    # called with the spec before the module is created or mapped
    before: tuple[Callable[[ModuleSpec], None], ...] = ()
    # called with the spec just before module code runs or a library is mapped; returns None or
    # a function that is called with the exception (or None) after it
    around: tuple[Callable[[ModuleSpec], Close | None], ...] = ()
    # called with the spec and the module once the import has succeeded
    after: tuple[Callable[[ModuleSpec, ModuleType], None], ...] = ()


NOTHING = ImportCallbacks()


def callbacks_or_nothing(host: Host, name: str) -> ImportCallbacks:
    """Return the callbacks of a module; a failure of ours leaves its import unguarded."""
    what = f"deciding what to do for {name}"
    callbacks: ImportCallbacks = ask(host, what, host.callbacks_for, name, default=NOTHING)
    return callbacks


def call_each(host: Host, callbacks: tuple[Callable[..., None], ...], *args: object) -> None:
    """Call every callback, each behind a barrier."""
    for callback in callbacks:
        try:
            callback(*args)
        except BaseException as error:
            if not swallowed(host, f"running {_name_of(callback)}", error):
                raise


def open_each(host: Host, callbacks: ImportCallbacks, spec: ModuleSpec) -> list[Close]:
    """Open the around-callbacks; give back what closes them, innermost first."""
    closes: list[Close] = []
    for opener in callbacks.around:
        try:
            close = opener(spec)
        except BaseException as error:
            if swallowed(host, f"opening {_name_of(opener)}", error):
                continue
            close_each(host, closes, error)
            raise
        if close is not None:
            closes.insert(0, close)
    return closes


def close_each(host: Host, closes: Iterable[Close], error: BaseException | None) -> None:
    """Close the around-callbacks, all of them; the module's own error goes before one of ours."""
    try:
        raised: BaseException | None = None
        for close in closes:
            try:
                close(error)
            except BaseException as failure:
                if not swallowed(host, f"closing {_name_of(close)}", failure):
                    is_hidden = error is not None and issubclass(type(failure), ON_PURPOSE)
                    raised = raised if is_hidden else raised or failure
        if raised is not None:
            raise raised
    except BaseException as failure:
        if not swallowed(host, "closing what was opened around an import", failure):
            raise


def _name_of(callback: object) -> object:
    return getattr(callback, "__qualname__", callback)
