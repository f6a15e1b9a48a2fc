"""The two ways by which Python code puts a library into the global symbol scope.

``ctypes`` with ``RTLD_GLOBAL``, and ``sys.setdlopenflags`` before an import. Both patches stay in
place for as long as the guard is installed and decide per call.
"""

from __future__ import annotations

import sys
from _thread import allocate_lock

from cudaguard.core.barrier import ask, call_each, swallowed
from cudaguard.core.caller import caller_frame, describe, hide_frame, module_of
from cudaguard.errors import ExtensionError
from cudaguard.files import os
from cudaguard.system.modules import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cudaguard.core.barrier import Host

    # Given a library or module: None, or whether it stays local and what to call afterwards.
    Decide = Callable[[str], "tuple[bool, Callable[[], None]] | None"]

RTLD_GLOBAL: int = getattr(os, "RTLD_GLOBAL", 0)  # 0: the platform has no symbol scopes
NOT_FOUND = ": cannot open shared object file"  # as glibc's loader says
getdlopenflags: Callable[[], int] = getattr(sys, "getdlopenflags", int)
# As Python's own functions take a number, and past what a class of its own makes of `&`:
# `_index(range(number).stop)`. Not in a function of ours: what it raises is the program's.
_index = int.__index__
NOTHING_TO_CALL: tuple[Callable[[], None], ...] = ()


class FlagsPatch:
    """Takes ``RTLD_GLOBAL`` from the flags by which a module has its extensions loaded.

    ``sys.setdlopenflags`` counts for every later import of an extension. Which one that will be
    is not known when it is called, but who calls it is: the package that loads its own.

    Args:
        decide: Called with the name of the calling module for each call with ``RTLD_GLOBAL``;
            answers as for `CtypesPatch`.
    """

    def __init__(self, decide: Decide, host: Host) -> None:
        self._decide = decide
        self._host = host
        self._original: Callable[[int], None] | None = None
        self._ours: object = None
        # Module and line of the call that has RTLD_GLOBAL in force; empty if none has.
        self.set_by = ("", "")
        # Module whose RTLD_GLOBAL was taken from the flags in force; empty if none was.
        self.masked_for = ""

    @property
    def is_up(self) -> bool:
        """True if the patch is in force."""
        return self._ours is not None

    def is_by(self, ours: object) -> bool:
        """Return True if it is in force by that stand-in; all others pass through."""
        return self._ours is ours

    def put_up(self) -> None:
        """Patch the function; does nothing if it is patched, or the platform has no scopes."""
        if self.is_up or not RTLD_GLOBAL:
            return
        self._original = sys.setdlopenflags
        self._ours = sys.setdlopenflags = _SetFlags(self, self._original)

    def before(self, flags: Any, module: str) -> tuple[Any, Callable[[], None]]:
        """Return flags as far as they may be, and what to call once they are set.

        Args:
            flags: As asked for, a number if that was one.
            module: Who asks for them; empty if none does.
        """
        masked, done = local_mode(self._host, self._decide, module, flags)

        def are_set() -> None:
            self.masked_for = module if masked != flags else ""
            self.set_by = _caller() if getdlopenflags() & RTLD_GLOBAL else ("", "")
            if done is not None:
                call_each(self._host, (done,))

        return masked, are_set

    def contains(self, what: str, error: BaseException) -> bool:
        """Return True if an error is a failure of ours; see `core.barrier.swallowed`."""
        return swallowed(self._host, what, error)

    def take_down(self) -> bool:
        """Put it back; False if someone else has patched on top, and ours passes through."""
        clean = self._original is None or sys.setdlopenflags is self._ours
        if self._original is not None and clean:
            sys.setdlopenflags = self._original
        self._ours = self._original = None
        return clean


class _SetFlags:
    """Looks like the function it replaces, and like that binds to no instance or class."""

    def __init__(self, patch: FlagsPatch, original: Callable[..., None]) -> None:
        self._patch, self._original = patch, original
        self.__module__, self.__doc__ = original.__module__, original.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        try:
            done = None
            # With other arguments in its own words: the call is wrong.
            is_ours = not kwargs and len(args) == 1 and self._patch.is_by(self) and not _is_ending()
            # No frame: no code has called it, but a thread that runs nothing else, or atexit.
            module = module_of(sys._getframe().f_back) if is_ours else ""
        except BaseException as error:
            if not self._patch.contains("deciding about flags for the loader", error):
                raise
            is_ours, done = False, None
        try:
            if is_ours and hasattr(type(args[0]), "__index__"):
                args = (_index(range(args[0]).stop),)
        except BaseException as error:
            hide_frame(error)
            raise
        try:
            if is_ours:
                flags, done = self._patch.before(args[0], module)
                args = (flags,)
        except BaseException as error:
            if not self._patch.contains("deciding about flags for the loader", error):
                hide_frame(error)
                raise
        try:
            self._original(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise
        if done is not None:
            try:
                done()
            except BaseException as error:
                if not self._patch.contains("looking at flags for the loader", error):
                    raise

    @property  # type: ignore[misc]  # a class that shows another one, as weakref.proxy does
    def __class__(self) -> type:
        return type(self._original)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def __repr__(self) -> str:
        return repr(self._original)

    def __reduce__(self) -> str:
        return self._original.__name__  # found by that in its module


def _is_ending() -> bool:
    """Return True if the interpreter is shutting down, so that nothing can be looked at."""
    return sys is None or sys.meta_path is None


def _caller() -> tuple[str, str]:
    frame = caller_frame()
    return module_of(frame), describe(frame)


def local_mode(
    host: Host, decide: Decide, name: str, mode: Any
) -> tuple[Any, Callable[[], None] | None]:
    """Return the mode or flags that a load gets, and what to call when it has happened.

    Without a name, or where the flags are no number, the original function has its own error.
    """
    if not (name and isinstance(mode, int) and mode & RTLD_GLOBAL):
        return mode, None
    try:
        decision = decide(name)
    except BaseException as error:
        if not swallowed(host, f"deciding the symbol scope of {name}", error):
            raise
        return mode, None
    if decision is None:
        return mode, None
    stays_local, done = decision
    return (mode & ~RTLD_GLOBAL if stays_local else mode), done


class CtypesPatch:
    """Takes ``RTLD_GLOBAL`` from the libraries that must stay local.

    ``CDLL.__init__`` is patched in place: sub-classes, ``PyDLL``, ``cdll.LoadLibrary`` and
    every early ``from ctypes import CDLL`` pass through it.

    Args:
        decide: Called with the library's name before each load with ``RTLD_GLOBAL``. Returns
            None, or a pair: whether the library has to stay local, and what to call when it
            has been loaded.
    """

    def __init__(self, decide: Decide, host: Host) -> None:
        self._decide = decide
        self._host = host
        self._class: Any = None
        self._original: Any = None
        self._ours: Any = None
        self._changing = allocate_lock()

    @property
    def is_up(self) -> bool:
        """True if the patch is in force."""
        return self._ours is not None

    def put_up(self, cdll: Any, default_mode: int) -> None:
        """Patch the class of a completely imported ``ctypes``; again if that was reloaded."""
        if not RTLD_GLOBAL or cdll is self._class or not self._changing.acquire(False):
            return  # nothing to do here, done, or being done by another thread
        try:
            if cdll is not self._class:
                self._patch(cdll, default_mode)
        finally:
            self._changing.release()

    def _patch(self, cdll: Any, default_mode: int) -> None:
        original, patch = cdll.__init__, self

        # The name and the arguments of the original: they are in the errors of bad calls.
        def __init__(  # noqa: N807
            self: object,
            name: Any,
            mode: int = default_mode,
            handle: Any = None,
            use_errno: Any = False,
            use_last_error: Any = False,
            winmode: Any = None,
        ) -> None:
            try:
                path, loaded = "", NOTHING_TO_CALL
                is_asked = name is not None and handle is None
                if is_asked and patch._ours is __init__ and not _is_ending():
                    path = _text(name)
            except BaseException as error:
                if not swallowed(patch._host, "looking at the name of a library", error):
                    hide_frame(error)
                    raise
                path, loaded = "", NOTHING_TO_CALL
            try:
                if path and hasattr(type(mode), "__index__"):
                    mode = _index(range(mode).stop)
            except BaseException as error:
                hide_frame(error)
                raise
            try:
                if path:
                    mode, loaded = patch._before(path, mode)
            except ExtensionError as refused:
                # Who loads a library by ctypes is prepared for no other error.
                raise OSError(str(refused)) from refused
            except BaseException as error:
                if not swallowed(patch._host, "preparing the load of a library", error):
                    hide_frame(error)
                    raise
            try:
                try:
                    original(self, name, mode, handle, use_errno, use_last_error, winmode)
                except OSError as error:
                    # By a bare name programs try what may be there.
                    if not (loaded and os.sep in path and patch._fetched(path, error)):
                        raise
                    original(self, name, mode, handle, use_errno, use_last_error, winmode)
            except BaseException as error:
                if loaded and isinstance(error, OSError):
                    patch._look_at(error, path)
                hide_frame(error)
                raise
            if loaded:
                try:
                    call_each(patch._host, loaded)
                except BaseException as error:
                    if not swallowed(patch._host, "looking at a library that was loaded", error):
                        raise

        for attribute in ("__module__", "__qualname__", "__doc__"):
            setattr(__init__, attribute, getattr(original, attribute, None))
        __init__.__wrapped__ = original  # type: ignore[attr-defined]  # inspect.signature follows it
        self._class, self._original, self._ours = cdll, original, __init__
        cdll.__init__ = __init__

    def _before(self, path: str, mode: Any) -> tuple[Any, tuple[Callable[[], None], ...]]:
        """Do what comes before a load; return its mode, and what to call when it has happened."""
        host = self._host
        asked = mode if isinstance(mode, int) else 0
        call_each(host, (host.before_load,), path)
        mode, done = local_mode(host, self._decide, path, mode)

        def loaded() -> None:
            host.after_mapping(path, "", asked)

        return mode, (loaded,) if done is None else (done, loaded)

    def _fetched(self, path: str, error: OSError) -> bool:
        """Return True if what a library was refused for is there now; try again then."""
        host, what = self._host, "looking for the library that another one lacks"
        return bool(ask(host, what, host.fetch_missing, path, error, only_loaders=True))

    def _look_at(self, error: OSError, path: str) -> None:
        host, what = self._host, "looking at why a library was not loaded"
        ask(host, what, host.load_failed, error, path, only_loaders=True)

    def take_down(self) -> bool:
        """Put the class back; False if someone else has patched on top, and ours passes through."""
        clean = self._class is None or self._class.__init__ is self._ours
        if self._class is not None and clean:
            self._class.__init__ = self._original
        self._class = self._original = self._ours = None
        return clean


def class_of(ctypes: Any) -> Any:
    """Return the class of ctypes itself, whatever a program has put in its place.

    None if ctypes has not been imported, or not completely.
    """
    for name in ("CDLL", "PyDLL") if peek(ctypes, "cdll") is not None else ():
        there = peek(ctypes, name)
        for one in there.__mro__ if type(there) is type else ():
            if one.__name__ == "CDLL" and one.__module__ == "ctypes":
                return one
    return None


def _text(name: Any) -> str:
    """Return the name of a library as text and nothing more, empty for what is no name.

    A path of another class than `pathlib`'s is the program's code, which ctypes alone calls.
    """
    if not isinstance(name, (str, bytes)):
        if type(name).__module__.partition(".")[0] != "pathlib":
            return ""
        name = os.fspath(name)
    return str.__str__(os.fsdecode(name))
