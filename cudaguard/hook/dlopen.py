"""Native loads that ask no finder: extension modules by file, and ``ctypes``.

Both patches stay in place for as long as the guard is installed and decide per call. A window
that opened and closed around an import would be left open by two threads that overlap.
"""

from __future__ import annotations

import os
import sys
from _thread import allocate_lock
from importlib.machinery import ExtensionFileLoader

from cudaguard.hook.loader import (
    NOTHING,
    ON_PURPOSE,
    call_each,
    close_each,
    here,
    hide_frame,
    open_each,
    slots_or_nothing,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from cudaguard.hook.loader import Host

    # Given a library or module: None, or whether it stays local and what to call afterwards.
    Decide = Callable[[str], "tuple[bool, Callable[[], None]] | None"]

RTLD_GLOBAL: int = getattr(os, "RTLD_GLOBAL", 0)  # 0: the platform has no symbol scopes
_STANDARD_LIBRARY = f"{os.sep}lib-dynload{os.sep}"


class ExtensionPatch:
    """Guards ``ExtensionFileLoader.create_module``, where every extension is mapped.

    torch's JIT builds come this way: ``spec_from_file_location`` and ``module_from_spec``
    ask no finder.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.watched: Mapping[str, object] = {}
        self._original: Callable[[ExtensionFileLoader, ModuleSpec], ModuleType] | None = None
        self._ours: object = None

    @property
    def is_up(self) -> bool:
        """Is the patch in force?"""
        return self._ours is not None

    def put_up(self) -> None:
        """Patch the class; does nothing if the patch is in place."""
        if self.is_up:  # also where someone has patched on top of us
            return
        original = self._original = ExtensionFileLoader.create_module

        def create_module(loader: ExtensionFileLoader, spec: ModuleSpec) -> ModuleType:
            try:
                if self._ours is create_module and _STANDARD_LIBRARY not in (spec.origin or ""):
                    return self._create(original, loader, spec)
                return original(loader, spec)
            except BaseException as error:
                hide_frame(error)
                raise

        self._ours = create_module
        ExtensionFileLoader.create_module = create_module  # type: ignore[assignment,method-assign]  # the patch

    def take_down(self) -> bool:
        """Put the class back; False if someone else has patched on top, and ours passes through."""
        clean = self._original is None or ExtensionFileLoader.create_module is self._ours
        if self._original is not None and clean:
            ExtensionFileLoader.create_module = self._original  # type: ignore[assignment,method-assign]  # the patch
        self._ours = self._original = None
        return clean

    def _create(
        self,
        original: Callable[[ExtensionFileLoader, ModuleSpec], ModuleType],
        loader: ExtensionFileLoader,
        spec: ModuleSpec,
    ) -> ModuleType:
        host, name = self.host, spec.name
        watched = self._watched_name(name)
        slots = NOTHING if watched is None else slots_or_nothing(host, watched)
        before: tuple[Callable[[ModuleSpec], None], ...] = (host.before_mapping,)
        # The package of a part has had its turn, and so has what comes through the finder.
        is_part = watched is not None and name.startswith(watched + ".")
        if here.__dict__.pop("prepared", None) is not spec and not is_part:
            before = (*slots.before, *before)
        absent = name not in sys.modules
        call_each(host, before, spec)
        module = sys.modules.get(name) if absent else None
        if module is not None and _is_same_file(module, spec):
            return module  # a prerequisite imported this very file
        closes = open_each(host, slots, spec)
        try:
            module = original(loader, spec)
        except BaseException as error:
            close_each(host, closes, error)
            hide_frame(error)
            raise
        close_each(host, closes, None)
        return module

    def _watched_name(self, name: str) -> str | None:
        watched = self.watched
        if name in watched:
            return name
        # torch renames a rebuilt extension to name_v1, name_v2 ...
        stem, _, number = name.rpartition("_v")
        if number.isdigit() and stem in watched:
            return stem
        package = name.rpartition(".")[0]
        while package and package not in watched:
            package = package.rpartition(".")[0]
        return package or None


def _is_same_file(module: ModuleType, spec: ModuleSpec) -> bool:
    try:
        return os.path.samefile(module.__spec__.origin, spec.origin)  # type: ignore[union-attr,arg-type]  # caught
    except (AttributeError, TypeError, ValueError, OSError):  # not from files, or not any more
        return False


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

    @property
    def is_up(self) -> bool:
        """Is the patch in force?"""
        return self._ours is not None

    def put_up(self) -> None:
        """Patch the function; does nothing if it is patched, or the platform has no scopes."""
        if self.is_up or not RTLD_GLOBAL:
            return
        original = self._original = sys.setdlopenflags

        def setdlopenflags(*args: Any) -> None:
            try:
                if self._ours is not setdlopenflags or len(args) != 1:
                    return original(*args)  # in its own words, if the call is wrong
                module = sys._getframe(1).f_globals.get("__name__")
                flags, done = local_mode(self._host, self._decide, module, args[0])
                original(flags)
                if done is not None:
                    call_each(self._host, (done,))
            except BaseException as error:
                hide_frame(error)
                raise

        for attribute in ("__module__", "__qualname__", "__doc__", "__text_signature__"):
            setattr(setdlopenflags, attribute, getattr(original, attribute, None))
        self._ours = setdlopenflags
        sys.setdlopenflags = setdlopenflags

    def take_down(self) -> bool:
        """Put it back; False if someone else has patched on top, and ours passes through."""
        clean = self._original is None or sys.setdlopenflags is self._ours
        if self._original is not None and clean:
            sys.setdlopenflags = self._original
        self._ours = self._original = None
        return clean


def local_mode(
    host: Host, decide: Decide, name: Any, mode: Any
) -> tuple[Any, Callable[[], None] | None]:
    """Return the mode or flags that a load gets, and what to call when it has happened."""
    try:
        decision = decide(os.fsdecode(name)) if mode & RTLD_GLOBAL else None
    except ON_PURPOSE:
        raise
    except TypeError:
        return mode, None  # no name or no flags: whoever is called has own words for that
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

    def put_up(self, ctypes: ModuleType) -> None:
        """Patch the class of a completely imported ``ctypes``; again if that was reloaded."""
        cdll: Any = ctypes.CDLL
        if not RTLD_GLOBAL or cdll is self._class or not self._changing.acquire(False):
            return  # nothing to do here, done, or being done by another thread
        try:
            if cdll is not self._class:
                self._patch(cdll, ctypes.DEFAULT_MODE)
        finally:
            self._changing.release()

    def _patch(self, cdll: Any, default_mode: int) -> None:
        original = cdll.__init__

        def __init__(  # noqa: N807  # ctypes' own name: it stands in the errors of bad calls
            library: object, name: Any, mode: int = default_mode, *args: Any, **kwargs: Any
        ) -> None:
            loaded = None
            is_open = args[0] if args else kwargs.get("handle")
            if self._ours is __init__ and name is not None and is_open is None:
                mode, loaded = local_mode(self._host, self._decide, name, mode)
            try:
                original(library, name, mode, *args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise
            if loaded is not None:
                call_each(self._host, (loaded,))

        for attribute in ("__module__", "__qualname__", "__doc__"):
            setattr(__init__, attribute, getattr(original, attribute, None))
        __init__.__wrapped__ = original  # type: ignore[attr-defined]  # inspect.signature follows it
        self._class, self._original, self._ours = cdll, original, __init__
        cdll.__init__ = __init__

    def take_down(self) -> bool:
        """Put the class back; False if someone else has patched on top, and ours passes through."""
        clean = self._class is None or self._class.__init__ is self._ours
        if self._class is not None and clean:
            self._class.__init__ = self._original
        self._class = self._original = self._ours = None
        return clean
