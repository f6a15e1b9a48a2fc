"""``ctypes.CDLL``, by which programs load libraries, and put them into the global symbol scope."""

from __future__ import annotations

from cudaguard.errors import ExtensionError
from cudaguard.files import os
from cudaguard.hooks.barrier import ask, call_each, swallowed
from cudaguard.hooks.caller import hide_frame
from cudaguard.hooks.dlopen import index_of, is_ending, local_mode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cudaguard.hooks.barrier import Host
    from cudaguard.hooks.dlopen import Decide


class LibraryLoads:
    """Takes ``RTLD_GLOBAL`` from the libraries that must stay local.

    ``CDLL.__init__`` is replaced in place: sub-classes, ``PyDLL``, ``cdll.LoadLibrary`` and every
    early ``from ctypes import CDLL`` pass through it. `decide` is called with the name before each
    load with ``RTLD_GLOBAL``; it returns None, or whether the library has to stay local, and what
    to call when it has been loaded.
    """

    def __init__(self, decide: Decide, host: Host) -> None:
        self._decide = decide
        self._host = host

    def load(
        self, original: Any, library: object, name: Any, mode: Any, handle: Any, *how: Any
    ) -> None:
        """Load a library by the original function, with all that is to happen around it."""
        try:
            loaded: tuple[Callable[[], None], ...] = ()
            path = "" if name is None or handle is not None or is_ending() else _text(name)
        except BaseException as error:
            if not swallowed(self._host, "looking at the name of a library", error):
                hide_frame(error)
                raise
            path, loaded = "", ()
        host = self._host
        try:
            if path:
                if hasattr(type(mode), "__index__"):
                    mode = index_of(range(mode).stop)
                what = "preparing the load of a library"
                mode, loaded = ask(host, what, self._before, path, mode, default=(mode, ()))
            try:
                original(library, name, mode, handle, *how)
            except OSError as error:
                # By a bare name programs try what may be there.
                what, fetch = "looking for the library that another one lacks", host.fetch_missing
                is_path = loaded and os.sep in path
                if not (is_path and ask(host, what, fetch, path, error, only_loaders=True)):
                    raise
                original(library, name, mode, handle, *how)
        except ExtensionError as refused:
            # Who loads a library by ctypes is prepared for no other error.
            raise OSError(str(refused)) from refused
        except BaseException as error:
            if loaded and isinstance(error, OSError):
                what = "looking at why a library was not loaded"
                ask(host, what, host.load_failed, error, path, only_loaders=True)
            hide_frame(error)
            raise
        if loaded:
            ask(host, "looking at a library that was loaded", self._ended, loaded)

    def _ended(self, loaded: tuple[Callable[[], None], ...]) -> None:
        ask(self._host, "looking at a library that was loaded", call_each, self._host, loaded)

    def ended(self, name: str, mode: int) -> None:
        """Look at what has come with a library that the kernel has let pass."""
        self._ended((lambda: self._host.after_mapping(name, "", mode),))

    def _before(self, path: str, mode: Any) -> tuple[Any, tuple[Callable[[], None], ...]]:
        """Do what comes before a load; return its mode, and what to call when it has happened."""
        host = self._host
        asked = mode if isinstance(mode, int) else 0
        call_each(host, (host.before_load,), path, asked)
        mode, done = local_mode(host, self._decide, path, mode)

        def loaded() -> None:
            host.after_mapping(path, "", asked)

        return mode, (loaded,) if done is None else (done, loaded)


def _text(name: Any) -> str:
    """Return the name of a library as text and nothing more, empty for what is no name.

    A path of another class than `pathlib`'s is the program's code, which ctypes alone calls.
    """
    if not isinstance(name, (str, bytes)):
        if type(name).__module__.partition(".")[0] != "pathlib":
            return ""
        name = os.fspath(name)
    return str.__str__(os.fsdecode(name))
