"""The two ways by which Python code puts a library into the global symbol scope.

``ctypes`` with ``RTLD_GLOBAL``, and ``sys.setdlopenflags`` before an import. Both patches stay in
place for as long as the guard is installed and decide per call.
"""

from __future__ import annotations

import sys
from _thread import allocate_lock

from cudaguard.core.caller import caller_frame, describe, module_of
from cudaguard.core.frames import hide_frame
from cudaguard.core.loader import ON_PURPOSE, call_each, look_at_failure
from cudaguard.errors import ExtensionError
from cudaguard.files.calls import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cudaguard.core.loader import Host

    # Given a library or module: None, or whether it stays local and what to call afterwards.
    Decide = Callable[[str], "tuple[bool, Callable[[], None]] | None"]

RTLD_GLOBAL: int = getattr(os, "RTLD_GLOBAL", 0)  # 0: the platform has no symbol scopes
getdlopenflags: Callable[[], int] = getattr(sys, "getdlopenflags", int)


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
        """Is the patch in force?"""
        return self._ours is not None

    def is_by(self, ours: object) -> bool:
        """Is it in force by that stand-in? Others pass through, wherever somebody has them."""
        return self._ours is ours

    def put_up(self) -> None:
        """Patch the function; does nothing if it is patched, or the platform has no scopes."""
        if self.is_up or not RTLD_GLOBAL:
            return
        self._original = sys.setdlopenflags
        self._ours = sys.setdlopenflags = _SetFlags(self, self._original)

    def set(self, original: Callable[[Any], None], flags: Any, module: str) -> None:
        """Set flags, as far as they may be, for the module that asks for it; empty if none does."""
        masked, done = local_mode(self._host, self._decide, module, flags)
        original(masked)
        self.masked_for = module if masked != flags else ""
        self.set_by = _caller() if getdlopenflags() & RTLD_GLOBAL else ("", "")
        if done is not None:
            call_each(self._host, (done,))

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
        original = self._original
        if sys is None or sys.meta_path is None:  # the interpreter shuts down
            return original(*args, **kwargs)
        try:
            if kwargs or len(args) != 1 or not self._patch.is_by(self):
                return original(*args, **kwargs)  # in its own words, if the call is wrong
            # No frame: no code has called it, but a thread that runs nothing else, or atexit.
            module = module_of(sys._getframe().f_back)
            return self._patch.set(original, number_of(args[0]), module)
        except BaseException as error:
            hide_frame(error)
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


def number_of(flags: Any) -> Any:
    """Return flags as the number that they stand for; as they are, if for none."""
    try:
        if hasattr(type(flags), "__index__"):
            # As Python's own functions do, and past what a class of its own makes of `&`.
            return int.__index__(range(flags).stop)
    except BaseException as error:
        hide_frame(error)
        raise
    return flags


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
    except ON_PURPOSE:
        raise
    except Exception as error:
        host.broken(f"deciding the symbol scope of {name}", error)
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
        """Is the patch in force?"""
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
        original = cdll.__init__

        def __init__(  # noqa: N807  # ctypes' own name: it stands in the errors of bad calls
            library: object, name: Any, mode: int = default_mode, *args: Any, **kwargs: Any
        ) -> None:
            if sys is None or sys.meta_path is None:  # the interpreter shuts down
                original(library, name, mode, *args, **kwargs)
                return
            loaded: tuple[Callable[..., None], ...] = ()
            is_open = args[0] if args else kwargs.get("handle")
            try:
                if self._ours is __init__ and name is not None and is_open is None:
                    path, mode = _text(name), number_of(mode)
                    asked = mode if isinstance(mode, int) else 0
                    self._before(path)
                    mode, done = local_mode(self._host, self._decide, path, mode)
                    loaded = (lambda: self._host.after_mapping(path, "", asked),)
                    if done is not None:
                        loaded = (done, *loaded)
                original(library, name, mode, *args, **kwargs)
            except BaseException as error:
                if loaded and isinstance(error, OSError):
                    look_at_failure(self._host, error, path)
                hide_frame(error)
                raise
            call_each(self._host, loaded)

        for attribute in ("__module__", "__qualname__", "__doc__"):
            setattr(__init__, attribute, getattr(original, attribute, None))
        __init__.__wrapped__ = original  # type: ignore[attr-defined]  # inspect.signature follows it
        self._class, self._original, self._ours = cdll, original, __init__
        cdll.__init__ = __init__

    def _before(self, path: str) -> None:
        try:
            call_each(self._host, (self._host.before_load,), path)
        except ExtensionError as refused:
            # Who loads a library by ctypes is prepared for no other error.
            raise OSError(str(refused)) from refused

    def take_down(self) -> bool:
        """Put the class back; False if someone else has patched on top, and ours passes through."""
        clean = self._class is None or self._class.__init__ is self._ours
        if self._class is not None and clean:
            self._class.__init__ = self._original
        self._class = self._original = self._ours = None
        return clean


def _text(name: Any) -> str:
    """Return the name of a library as text and nothing more, empty for what is no name."""
    try:
        path = os.fspath(name)
    except TypeError:
        return ""
    except BaseException as error:
        hide_frame(error)
        raise
    return str.__str__(os.fsdecode(path))
