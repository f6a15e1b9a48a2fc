"""What the hooks ask of whoever installed them, each question in a net of its own."""

from __future__ import annotations

import sys

from cudaguard.core.net import ON_PURPOSE, contained
from cudaguard.files import theirs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Protocol

    Close = Callable[[BaseException | None], None]

    class Host(Protocol):
        """What the hooks ask of whoever installed them."""

        def slots_for(self, name: str) -> Slots:
            """Return what is to happen around the import of a watched module."""

        def before_mapping(self, spec: ModuleSpec) -> None:
            """Act before any extension module is mapped, watched or not."""

        def before_load(self, library: str) -> None:
            """Look at a library, and at how things are, before it is loaded by ctypes."""

        def load_failed(self, error: Exception, library: str) -> None:
            """Look at why the dynamic loader has refused a library; the error is raised anyway.

            `library` is empty for an extension module.
            """

        def bring_missing(self, spec: ModuleSpec, error: ImportError) -> bool:
            """Bring the library that an extension was refused for; True if it came."""

        def fetch_missing(self, library: str, error: OSError) -> bool:
            """Bring the library that another one was refused for by ctypes; True if it came."""

        def explained(self, spec: ModuleSpec, error: ImportError) -> ImportError | None:
            """Return an error that says why an extension was not loaded, None to let it be."""

        def after_mapping(self, library: str, extension: str, flags: int) -> None:
            """Look at what a load has changed; `extension` is empty for a load by ctypes."""

        def broken(self, what: str, error: Exception) -> None:
            """Take note that the guard itself failed; never raises."""


class Slots:
    """What is to happen around the import of one module.

    Args:
        before: Called with the spec before the module is created or mapped.
        around: Called with the spec just before module code runs or a library is mapped;
            returns None or a function that is called with the exception (or None) after it.
        after: Called with the spec and the module once the import has succeeded.
    """

    __slots__ = ("after", "around", "before")

    def __init__(
        self,
        before: tuple[Callable[[ModuleSpec], None], ...] = (),
        around: tuple[Callable[[ModuleSpec], Close | None], ...] = (),
        after: tuple[Callable[[ModuleSpec, ModuleType], None], ...] = (),
    ) -> None:
        self.before = before
        self.around = around
        self.after = after


NOTHING = Slots()


def slots_or_nothing(host: Host, name: str) -> Slots:
    """Return the slots of `name`; a failure of ours leaves the import unguarded, not broken."""
    try:
        return host.slots_for(name)
    except BaseException as error:
        if not contained(host, f"deciding what to do for {name}", error):
            raise
    return NOTHING


def call_each(host: Host, callbacks: tuple[Callable[..., None], ...], *args: object) -> None:
    """Call every callback, each with its own safety net."""
    for callback in callbacks:
        try:
            callback(*args)
        except BaseException as error:
            if not contained(host, f"running {_name_of(callback)}", error):
                raise


def look_at_failure(host: Host, error: Exception, library: str = "") -> None:
    """Have the host look at an error of the loader, which alone may be raised."""
    try:
        host.load_failed(error, library)
    except ON_PURPOSE as warning:  # no reason to hide the error from who expects it
        print_instead(warning)
    except BaseException as failure:
        if not contained(host, "looking at why a library was not loaded", failure):
            raise


def brought(host: Host, spec: ModuleSpec, error: ImportError) -> bool:
    """Return True if the library that an extension was refused for is there now; try again then."""
    try:
        return host.bring_missing(spec, error)
    except BaseException as failure:
        if not contained(host, "looking for the library that an extension lacks", failure):
            raise
    return False


def fetched(host: Host, library: str, error: OSError) -> bool:
    """Return True if what a library was refused for is there now; try again then."""
    try:
        return host.fetch_missing(library, error)
    except ON_PURPOSE as warning:  # who loads a library by ctypes is prepared for no other error
        print_instead(warning)
    except BaseException as failure:
        if not contained(host, "looking for the library that another one lacks", failure):
            raise
    return False


def explained(host: Host, spec: ModuleSpec, error: ImportError) -> ImportError | None:
    """Return what is raised from the loader's error, None for that error as it is."""
    try:
        return host.explained(spec, error)
    except ON_PURPOSE as warning:
        print_instead(warning)
    except BaseException as failure:
        if not contained(host, "looking at why an extension was not loaded", failure):
            raise
    return None


def print_instead(warning: BaseException) -> None:
    """Print a warning that the user's filters make an error, where none may be raised."""
    try:
        if sys.stderr is not None:
            print(f"{type(warning).__name__}: {warning}", file=sys.stderr)
    except theirs(Exception):  # nobody can be told
        return


def open_each(host: Host, slots: Slots, spec: ModuleSpec) -> list[Close]:
    """Open the around-slots; give back what closes them, innermost first."""
    closes: list[Close] = []
    for opener in slots.around:
        try:
            close = opener(spec)
        except BaseException as error:
            if contained(host, f"opening {_name_of(opener)}", error):
                continue
            close_each(host, closes, error)
            raise
        if close is not None:
            closes.insert(0, close)
    return closes


def close_each(host: Host, closes: Iterable[Close], error: BaseException | None) -> None:
    """Close the around-slots, all of them; the module's own error goes before one of ours."""
    try:
        raised: BaseException | None = None
        for close in closes:
            try:
                close(error)
            except BaseException as failure:
                if not contained(host, f"closing {_name_of(close)}", failure):
                    is_hidden = error is not None and issubclass(type(failure), ON_PURPOSE)
                    raised = raised if is_hidden else raised or failure
        if raised is not None:
            raise raised
    except BaseException as failure:
        if not contained(host, "closing what was opened around an import", failure):
            raise


def _name_of(callback: object) -> object:
    return getattr(callback, "__qualname__", callback)
