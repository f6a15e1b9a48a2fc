"""``sys.setdlopenflags`` and ``ctypes.CDLL``: how programs load into the global symbol scope."""

from __future__ import annotations

import sys

from cudaguard.errors import ExtensionError
from cudaguard.files import os
from cudaguard.hooks.barrier import ask, call_each, swallowed
from cudaguard.hooks.caller import caller_frame, describe, hide_frame, module_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from cudaguard.hooks.barrier import Host

    # Given a library or module: None, or whether it stays local and what to call afterwards.
    Decide = Callable[[str], "tuple[bool, Callable[[], object]] | None"]

RTLD_GLOBAL: int = getattr(os, "RTLD_GLOBAL", 0)  # 0: the platform has no symbol scopes
RTLD_NOLOAD: int = getattr(os, "RTLD_NOLOAD", 0)
NOT_FOUND = ": cannot open shared object file"  # as glibc's loader says
getdlopenflags: Callable[[], int] = getattr(sys, "getdlopenflags", int)
# As Python's own functions take a number, and past what a class of its own makes of `&`:
# `index_of(range(number).stop)`. Not in a function of ours: what it raises is the program's.
index_of = int.__index__


class LoaderFlags:
    """Takes ``RTLD_GLOBAL`` from the flags by which a module has its extensions loaded.

    ``sys.setdlopenflags`` counts for every later import of an extension. Which one that will be is
    not known when it is called, but who calls it is: the package that loads its own.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        # Module and line of the call that has RTLD_GLOBAL in force; empty if none has.
        self.set_by = ("", "")
        # Module whose RTLD_GLOBAL was taken from the flags in force; empty if none was.
        self.masked_for = ""

    def before(self, flags: Any, module: str) -> tuple[Any, Callable[[], None]]:
        """Return flags as far as they may be, and what to call once they are set."""
        masked, done = local_mode(self._host, self._host.scope_of_extensions, module, flags)

        def are_set() -> None:
            self.masked_for = module if masked != flags else ""
            frame = caller_frame() if getdlopenflags() & RTLD_GLOBAL else None
            self.set_by = module_of(frame), describe(frame)
            if done is not None:
                call_each(self._host, (done,))

        return masked, are_set

    def call(
        self,
        original: Callable[..., None],
        caller: FrameType | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """Call the original function, with flags as far as they may be.

        There is no caller in a thread that runs nothing else, and none at exit.
        """
        host, done, what = self._host, None, "deciding about flags for the loader"
        try:
            # With other arguments in its own words: the call is wrong.
            if not kwargs and len(args) == 1 and not is_ending():
                given = args[0]
                if hasattr(type(given), "__index__"):
                    given = index_of(range(given).stop)
                module = module_of(caller)
                flags, done = ask(host, what, self.before, given, module, default=(given, None))
                args = (flags,)
            original(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise
        if done is not None:
            ask(host, "looking at flags for the loader", done)


def is_ending() -> bool:
    """Return True if the interpreter is shutting down, so that nothing can be looked at."""
    return sys is None or sys.meta_path is None


def local_mode(
    host: Host, decide: Decide, name: str, mode: Any
) -> tuple[Any, Callable[[], None] | None]:
    """Return the mode or flags that a load gets, and what to call when it has happened.

    Without a name, or where the flags are no number, the original function has its own error.
    """
    if not (name and isinstance(mode, int) and mode & RTLD_GLOBAL):
        return mode, None
    decision = ask(host, f"deciding the symbol scope of {name}", decide, name)
    if decision is None:
        return mode, None
    stays_local, done = decision
    return (mode & ~RTLD_GLOBAL if stays_local else mode), done


# --- ctypes.CDLL, by which programs load libraries ------------------------------------------------


class LibraryLoads:
    """Takes ``RTLD_GLOBAL`` from the libraries that must stay local.

    ``CDLL.__init__`` is replaced in place: sub-classes, ``PyDLL``, ``cdll.LoadLibrary`` and every
    early ``from ctypes import CDLL`` pass through it.
    """

    def __init__(self, host: Host) -> None:
        self._host = host

    def load(
        self, original: Any, library: object, name: Any, mode: Any, handle: Any, *how: Any
    ) -> None:
        """Load a library by the original function, with all that is to happen around it."""
        try:
            loaded: tuple[Callable[[], None], ...] = ()
            instead, target = None, name
            path = "" if name is None or handle is not None or is_ending() else _text(name)
        except BaseException as error:
            if not swallowed(self._host, "looking at the name of a library", error):
                hide_frame(error)
                raise
            path, loaded, instead, target = "", (), None, name
        host = self._host
        try:
            if path:
                if hasattr(type(mode), "__index__"):
                    mode = index_of(range(mode).stop)
                what = "preparing the load of a library"
                unchanged = mode, (), None
                mode, loaded, instead = ask(host, what, self._before, path, mode, default=unchanged)
                target = instead[0] if instead else name
            try:
                original(library, target, mode, handle, *how)
            except OSError as error:
                # By a bare name programs try what may be there.
                what, fetch = "looking for the library that another one lacks", host.fetch_missing
                is_path = loaded and os.sep in path
                file = ask(host, what, fetch, path, error, prints=True) if is_path else ""
                if not file:
                    raise
                if file != path and not instead:
                    target, instead = file, (file, lambda _: None)
                original(library, target, mode, handle, *how)
        except ExtensionError as refused:
            # Who loads a library by ctypes is prepared for no other error.
            hide_frame(refused)
            raise OSError(str(refused)) from refused
        except BaseException as error:
            if instead:
                ask(host, "looking at a library that was not loaded", instead[1], False)
            if loaded and isinstance(error, OSError):
                what = "looking at why a library was not loaded"
                ask(host, what, host.load_failed, error, path, prints=True)
            hide_frame(error)
            raise
        if instead:
            vars(library)["_name"] = name
            ask(host, "looking at a library that was loaded", instead[1], True)
        if loaded:
            ask(host, "looking at a library that was loaded", self._ended, loaded)

    def _ended(self, loaded: tuple[Callable[[], None], ...]) -> None:
        ask(self._host, "looking at a library that was loaded", call_each, self._host, loaded)

    def ended(self, name: str, mode: int) -> None:
        """Look at what has come with a library that the kernel has let pass."""
        self._ended((lambda: self._host.after_mapping(name, "", mode),))

    def _before(
        self, path: str, mode: Any
    ) -> tuple[Any, tuple[Callable[[], None], ...], tuple[str, Callable[[bool], None]] | None]:
        """Do what comes before a load.

        Return its mode, what to call when it has happened, and None, or the file to load instead
        with what to call when it was or was not.
        """
        host = self._host
        asked = mode if isinstance(mode, int) else 0
        instead = ask(host, "preparing the load of a library", host.before_load, path, asked)
        mode, done = local_mode(host, host.scope_of_library, path, mode)

        def loaded() -> None:
            host.after_mapping(path, "", asked)

        return mode, (loaded,) if done is None else (done, loaded), instead


def _text(name: Any) -> str:
    """Return the name of a library as text and nothing more, empty for what is no name.

    A path of another class than `pathlib`'s is the program's code, which ctypes alone calls.
    """
    if not isinstance(name, (str, bytes)):
        if type(name).__module__.partition(".")[0] != "pathlib":
            return ""
        name = os.fspath(name)
    return str.__str__(os.fsdecode(name))
