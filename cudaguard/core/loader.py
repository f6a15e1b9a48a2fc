"""The loader that stands in for a watched module's own loader, until its code runs.

Prerequisites run in ``create_module`` and nowhere else ("create-guard"): in ``find_spec`` the
process-wide import lock would be held, in ``exec_module`` an extension is already mapped. The
real loader is back on spec and module before a line of module code runs.
"""

from __future__ import annotations

import sys
from _frozen_importlib_external import ExtensionFileLoader  # light: `importlib` is not
from _thread import _local

from cudaguard.core.frames import hide_frame, of_import_system
from cudaguard.errors import CudaGuardError, CudaGuardWarning
from cudaguard.system.interrupts import is_of_signal_handler
from cudaguard.system.modules import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, Protocol

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
            """Import what has the library that an extension was refused for; True if it came."""

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
# Raised by callbacks on purpose (`strict`, or a warning the user turned into an error).
ON_PURPOSE = (CudaGuardError, CudaGuardWarning)
# `prepared`: the spec of the extension that this thread's GuardLoader hands to the real
# create_module, which is patched as well (see `core.extension_loads`): once is enough.
# `mapping`: the spec of the extension that it is mapping, whose own code may import others.
here = _local()


def is_imported(name: str) -> bool:
    """Is the module there, finished or not? None in ``sys.modules`` blocks its import instead."""
    return sys.modules.get(name) is not None


def is_under_way(name: str) -> bool:
    """Is the module being imported just now, by whatever thread?"""
    return bool(getattr(peek(sys.modules.get(name), "__spec__"), "_initializing", False))


def slots_or_nothing(host: Host, name: str) -> Slots:
    """Return the slots of `name`; a failure of ours leaves the import unguarded, not broken."""
    try:
        return host.slots_for(name)
    except ON_PURPOSE:
        raise
    except Exception as error:
        host.broken(f"deciding what to do for {name}", error)
        return NOTHING


def call_each(host: Host, callbacks: tuple[Callable[..., None], ...], *args: object) -> None:
    """Call every callback, each with its own safety net."""
    for callback in callbacks:
        try:
            callback(*args)
        except ON_PURPOSE:
            raise
        except Exception as error:
            if is_of_signal_handler(error):
                raise
            host.broken(f"running {getattr(callback, '__qualname__', callback)}", error)


def look_at_failure(host: Host, error: Exception, library: str = "") -> None:
    """Have the host look at an error of the loader, which alone may be raised."""
    try:
        call_each(host, (host.load_failed,), error, library)
    except ON_PURPOSE as warning:  # no reason to hide the error from who expects it
        print_instead(warning)


def brought(host: Host, spec: ModuleSpec, error: ImportError) -> bool:
    """Has the library come by now that an extension was refused for? Then it is worth a try."""
    try:
        return host.bring_missing(spec, error)
    except ON_PURPOSE:
        raise
    except Exception as failure:
        host.broken(f"looking for the library that {spec.name} lacks", failure)
        return False


def explained(host: Host, spec: ModuleSpec, error: ImportError) -> ImportError | None:
    """Return what is raised from the loader's error, None for that error as it is."""
    try:
        return host.explained(spec, error)
    except ON_PURPOSE as warning:
        print_instead(warning)
    except Exception as failure:
        host.broken(f"looking at why {spec.name} was not loaded", failure)
    return None


def print_instead(warning: BaseException) -> None:
    """Print a warning that the user's filters make an error, where none may be raised."""
    if sys.stderr is not None:
        print(f"{type(warning).__name__}: {warning}", file=sys.stderr)


def open_each(host: Host, slots: Slots, spec: ModuleSpec) -> list[Close]:
    """Open the around-slots; give back what closes them, innermost first."""
    closes: list[Close] = []
    for opener in slots.around:
        try:
            close = opener(spec)
        except BaseException as error:
            if isinstance(error, Exception) and not isinstance(error, ON_PURPOSE):
                host.broken(f"opening {getattr(opener, '__qualname__', opener)}", error)
                continue
            close_each(host, closes, error)
            raise
        if close is not None:
            closes.insert(0, close)
    return closes


def close_each(host: Host, closes: Iterable[Close], error: BaseException | None) -> None:
    """Close the around-slots, all of them; the module's own error goes before one of theirs."""
    raised: Exception | None = None
    for close in closes:
        try:
            close(error)
        except ON_PURPOSE as purpose:
            raised = raised or purpose
        except Exception as failure:
            host.broken(f"closing {getattr(close, '__qualname__', close)}", failure)
    if raised is not None and error is None:
        raise raised


class _Load:
    """The import that a `GuardLoader` stands in; apart from it, since its attributes are slow."""

    __slots__ = ("finished_spec", "host", "prepared", "real", "slots", "spec")

    def __init__(self, real: Any, spec: ModuleSpec, host: Host) -> None:
        self.real = real
        self.spec: Any = spec  # its loader is declared as a class that we only resemble
        self.host = host
        self.slots: Slots | None = None
        self.prepared = False
        self.finished_spec: ModuleSpec | None = None

    def prepare(self) -> Slots:
        """Run what comes before, once, and return what else there is to do."""
        slots = self.slots
        if slots is None:
            slots = self.slots = slots_or_nothing(self.host, self.spec.name)
        if not self.prepared:
            self.prepared = True  # first: a prerequisite may come back here for the same spec
            call_each(self.host, slots.before, self.spec)
        return slots


class GuardLoader:
    """Transparent stand-in for `real`: equal to it, of its class, with its attributes."""

    __slots__ = ("__weakref__", "_load")
    _load: _Load

    def __init__(self, real: Any, spec: ModuleSpec, host: Host) -> None:
        object.__setattr__(self, "_load", _Load(real, spec, host))

    @of_import_system
    def create_module(self, spec: Any) -> ModuleType | None:
        """Run the prerequisites, then let the real loader create the module for a spec."""
        load = self._load
        real, name = load.real, spec.name
        # A LazyLoader around us only registers the module; its time is exec_module.
        # An extension, however, is mapped here, lazy or not.
        if spec.loader is self or isinstance(real, ExtensionFileLoader):
            absent = name not in sys.modules
            slots = load.prepare()
            if absent:
                # Did a prerequisite import the module itself? A second copy must not arise.
                module = sys.modules.get(name)
                if module is not None:
                    load.finished_spec = module.__spec__
                    if spec.loader is real:
                        # That import got this very spec: it must not end in a second run.
                        spec.loader = self
                    return module
            if isinstance(real, ExtensionFileLoader):
                here.prepared = spec
            if not slots.after and not slots.around:
                self._step_aside(None)
        create = getattr(real, "create_module", None)
        if create is None:
            raise ImportError("loaders that define exec_module() must also define create_module()")
        try:
            created: ModuleType | None = create(spec)
        except BaseException as error:
            hide_frame(error)
            raise
        return created

    @of_import_system
    def exec_module(self, module: ModuleType) -> None:
        """Run the module's code by its real loader, with the slots open around it."""
        load = self._load
        self._step_aside(module)
        if load.finished_spec is not None:
            # importlib has put the new spec on a module that was complete already.
            module.__spec__ = load.finished_spec
            return
        slots, host, spec = load.prepare(), load.host, load.spec
        closes = open_each(host, slots, spec) if slots.around else ()
        try:
            load.real.exec_module(module)
        except BaseException as error:
            close_each(host, closes, error)
            hide_frame(error)
            raise
        if closes:
            close_each(host, closes, None)
        if slots.after:
            # The module may have replaced itself in sys.modules while it ran.
            call_each(host, slots.after, spec, sys.modules.get(spec.name, module))

    def _step_aside(self, module: ModuleType | None) -> None:
        """Put the real loader back wherever importlib has put this one."""
        real, spec = self._load.real, self._load.spec
        if spec.loader is self:
            spec.loader = real
        if module is None:
            return
        for owner, name in ((_own(module, "__spec__"), "loader"), (module, "__loader__")):
            if owner is not None and _own(owner, name) is self:
                try:
                    setattr(owner, name, real)
                except (AttributeError, TypeError):  # a module object of an unusual class
                    pass

    @property  # type: ignore[misc]  # a class that shows another one, as weakref.proxy does
    def __class__(self) -> type:
        return type(self._load.real)

    def __getattr__(self, name: str) -> Any:
        if name == "get_code" and sys._getframe(1).f_globals.get("__name__") == "runpy":
            # `python -m watched` never calls exec_module: this is the last moment before
            # the code runs, and the loader runpy will put on the module is read after it.
            self._load.prepare()
            self._step_aside(None)
        return getattr(self._load.real, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._load.real, name, value)

    def __eq__(self, other: object) -> bool:
        return bool(self._load.real == (other._load.real if type(other) is GuardLoader else other))

    def __hash__(self) -> int:
        return hash(self._load.real)

    def __repr__(self) -> str:
        return repr(self._load.real)

    def __reduce__(self) -> tuple[object, ...]:
        # The greatest of one is that one: read back also where there is no guard.
        return max, ((self._load.real,),)


def _own(owner: object, name: str) -> object:
    # Past any __getattribute__: a lazy module would load itself at the first look.
    try:
        return object.__getattribute__(owner, name)
    except AttributeError:
        return None
