"""``ctypes.CDLL``, by which programs load libraries, and put them into the global symbol scope.

The patch stays in place for as long as the guard is installed and decides per call.
"""

from __future__ import annotations

from _thread import allocate_lock

from cudaguard.errors import ExtensionError
from cudaguard.files import os
from cudaguard.hooks.barrier import ask, call_each, swallowed
from cudaguard.hooks.caller import hide_frame
from cudaguard.hooks.dlopen import RTLD_GLOBAL, index_of, is_ending, local_mode
from cudaguard.system.modules import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cudaguard.hooks.barrier import Host
    from cudaguard.hooks.dlopen import Decide


NOTHING_TO_CALL: tuple[Callable[[], None], ...] = ()


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

    def install(
        self,
        cdll: Any,
        default_mode: int,
        beneath: Callable[[Any], Any] = lambda function: function,
    ) -> None:
        """Patch the class of a completely imported ``ctypes``; again if that was reloaded.

        Args:
            cdll: The class.
            default_mode: Of its loads.
            beneath: As for `cudaguard.hooks.extensions.ExtensionPatch.install`.
        """
        if not RTLD_GLOBAL or cdll is self._class or not self._changing.acquire(False):
            return  # nothing to do here, done, or being done by another thread
        try:
            if cdll is not self._class:
                self._patch(cdll, default_mode, beneath(cdll.__init__))
        finally:
            self._changing.release()

    def _patch(self, cdll: Any, default_mode: int, original: Any) -> None:
        patch = self

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
            how = name, mode, handle, use_errno, use_last_error, winmode
            try:
                if patch._ours is __init__:
                    patch.load(original, self, *how)
                else:
                    original(self, *how)
            except BaseException as error:
                hide_frame(error)
                raise

        for attribute in ("__module__", "__qualname__", "__doc__"):
            setattr(__init__, attribute, getattr(original, attribute, None))
        __init__.__wrapped__ = original  # type: ignore[attr-defined]  # inspect.signature follows it
        self._class, self._original, self._ours = cdll, original, __init__
        cdll.__init__ = __init__

    def load(
        self, original: Any, library: object, name: Any, mode: Any, handle: Any, *how: Any
    ) -> None:
        """Load a library by the original function, with all that is to happen around it.

        Args:
            original: ``CDLL.__init__``.
            library: What it makes; this and the others are its arguments.
            name: A name or path.
            mode: For the loader.
            handle: Of what is loaded already, or None.
            how: The others.
        """
        try:
            path, loaded = "", NOTHING_TO_CALL
            if name is not None and handle is None and not is_ending():
                path = _text(name)
        except BaseException as error:
            if not swallowed(self._host, "looking at the name of a library", error):
                hide_frame(error)
                raise
            path, loaded = "", NOTHING_TO_CALL
        try:
            if path and hasattr(type(mode), "__index__"):
                mode = index_of(range(mode).stop)
        except BaseException as error:
            hide_frame(error)
            raise
        try:
            if path:
                mode, loaded = self._before(path, mode)
        except ExtensionError as refused:
            # Who loads a library by ctypes is prepared for no other error.
            raise OSError(str(refused)) from refused
        except BaseException as error:
            if not swallowed(self._host, "preparing the load of a library", error):
                hide_frame(error)
                raise
        try:
            try:
                original(library, name, mode, handle, *how)
            except OSError as error:
                # By a bare name programs try what may be there.
                if not (loaded and os.sep in path and self._fetched(path, error)):
                    raise
                original(library, name, mode, handle, *how)
        except BaseException as error:
            if loaded and isinstance(error, OSError):
                self._look_at(error, path)
            hide_frame(error)
            raise
        if loaded:
            self._ended(loaded)

    def _ended(self, loaded: tuple[Callable[[], None], ...]) -> None:
        try:
            call_each(self._host, loaded)
        except BaseException as error:
            if not swallowed(self._host, "looking at a library that was loaded", error):
                raise

    def ended(self, name: str, mode: int) -> None:
        """Look at what has come with a library that the kernel has let pass."""
        self._ended((lambda: self._host.after_mapping(name, "", mode),))

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

    def uninstall(self) -> bool:
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
