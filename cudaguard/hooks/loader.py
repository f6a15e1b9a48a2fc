"""The loader that stands in for a watched module's own loader, until its code runs.

Prerequisites run in ``create_module`` and nowhere else ("create-guard"): in ``find_spec`` the
process-wide import lock would be held, in ``exec_module`` an extension is already mapped. The
real loader is back on spec and module before a line of module code runs.
"""

from __future__ import annotations

import sys
from _frozen_importlib_external import ExtensionFileLoader  # light: `importlib` is not
from _thread import _local

from cudaguard.files import own_errors, program_errors
from cudaguard.hooks.barrier import (
    NOTHING,
    ImportCallbacks,
    ask,
    call_each,
    callbacks_or_nothing,
    close_each,
    open_each,
    swallowed,
)
from cudaguard.hooks.caller import hide_frame, of_import_system
from cudaguard.system import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from cudaguard.hooks.barrier import Close, Host

# `prepared`: the spec of the extension that this thread's GuardLoader hands to the real
# create_module, which is patched as well (see `hooks.extensions`): once is enough.
here = _local()
_Module: type = type(sys)
_NO_CLOSES: Sequence[Close] = ()


def is_imported(name: str) -> bool:
    """Return True if the module is there, finished or not; None in ``sys.modules`` blocks it."""
    return sys.modules.get(name) is not None


def stand_before(host: Host, spec: ModuleSpec) -> None:
    """Put a loader of ours before that of a watched module."""
    try:
        loader: Any = spec.loader
        # Left alone: namespace packages (no loader), loaders that know only load_module, and
        # a spec handed out before that is wrapped already.
        if hasattr(loader, "exec_module") and type(loader) is not GuardLoader:
            spec.loader = GuardLoader(loader, spec, host)  # type: ignore[assignment]  # duck-typed
    except BaseException as error:
        if not swallowed(host, "standing before the loader of a module", error):
            raise


def is_under_way(name: str) -> bool:
    """Return True if the module is being imported just now, by any thread."""
    return bool(getattr(peek(sys.modules.get(name), "__spec__"), "_initializing", False))


class _Load:
    """The import that a `GuardLoader` stands in; apart from it, since its attributes are slow."""

    __slots__ = ("callbacks", "finished_spec", "host", "real", "spec")

    def __init__(self, real: Any, spec: ModuleSpec, host: Host) -> None:
        self.real = real
        self.spec: Any = spec  # its loader is declared as a class that we only resemble
        self.host = host
        self.callbacks: ImportCallbacks | None = None
        self.finished_spec: ModuleSpec | None = None

    def prepare(self) -> ImportCallbacks:
        """Run what comes before, once, and return what else there is to do."""
        if (callbacks := self.callbacks) is None:
            callbacks = callbacks_or_nothing(self.host, self.spec.name)
            # Plug-ins and prerequisites may come back here for the same spec.
            is_first, self.callbacks = self.callbacks is None, callbacks
            if is_first:
                call_each(self.host, callbacks.before, self.spec)
        return callbacks


class GuardLoader:
    """Transparent stand-in for `real`: equal to it, of its class, with its attributes."""

    __slots__ = ("__weakref__", "_load")
    _load: _Load

    def __init__(self, real: Any, spec: ModuleSpec, host: Host) -> None:
        object.__setattr__(self, "_load", _Load(real, spec, host))

    @of_import_system
    def create_module(self, spec: Any) -> ModuleType | None:
        """Run the prerequisites, then let the real loader create the module for a spec."""
        try:
            load = self._load
            real = load.real
            # A LazyLoader around us only registers the module; its time is exec_module.
            # An extension, however, is mapped here, lazy or not.
            if spec.loader is self or isinstance(real, ExtensionFileLoader):
                absent = spec.name not in sys.modules
                callbacks = load.prepare()
                # Did a prerequisite import the module itself? A second copy must not arise.
                module = sys.modules.get(spec.name) if absent else None
                if module is not None:
                    load.finished_spec = module.__spec__
                    if spec.loader is real:
                        # That import got this very spec: it must not end in a second run.
                        spec.loader = self
                    return module
                if isinstance(real, ExtensionFileLoader):
                    here.prepared = spec
                if not callbacks.after and not callbacks.around:
                    self._step_aside(None)
        except BaseException as error:
            if not swallowed(self._load.host, "preparing an import", error):
                raise
        create = getattr(self._load.real, "create_module", None)
        try:
            if create is None:
                text = "loaders that define exec_module() must also define create_module()"
                raise ImportError(text)
            created: ModuleType | None = create(spec)
        except BaseException as error:
            hide_frame(error)
            raise
        return created

    @of_import_system
    def exec_module(self, module: ModuleType) -> None:
        """Run the module's code by its real loader, with the callbacks open around it."""
        try:
            load, callbacks, closes = self._load, NOTHING, _NO_CLOSES
            self._step_aside(module)
            if load.finished_spec is None:
                callbacks = load.callbacks or load.prepare()
                if callbacks.around:
                    closes = open_each(load.host, callbacks, load.spec)
        except BaseException as error:
            load, callbacks, closes = self._load, NOTHING, _NO_CLOSES
            if not swallowed(load.host, "preparing an import", error):
                raise
        if load.finished_spec is not None:
            # importlib has put the new spec on a module that was complete already.
            module.__spec__ = load.finished_spec
            return
        try:
            load.real.exec_module(module)
        except BaseException as error:
            if closes:
                close_each(load.host, closes, error)
            hide_frame(error)
            raise
        if closes:
            close_each(load.host, closes, None)
        if callbacks.after:
            # The module may have replaced itself in sys.modules while it ran.
            after, what = sys.modules.get(load.spec.name, module), "looking at what was imported"
            ask(load.host, what, call_each, load.host, callbacks.after, load.spec, after)

    def _step_aside(self, module: ModuleType | None) -> None:
        """Put the real loader back wherever importlib has put this one."""
        real, spec = self._load.real, self._load.spec
        if spec.loader is self:
            spec.loader = real
        if module is None:
            return
        if type(module) is _Module:  # as nearly all are
            there = vars(module)
            if there.get("__loader__") is self:
                there["__loader__"] = real
            if there.get("__spec__") is spec:
                return
        for owner, name in ((_own(module, "__spec__"), "loader"), (module, "__loader__")):
            if owner is not None and _own(owner, name) is self:
                try:
                    setattr(owner, name, real)
                except program_errors(AttributeError, TypeError):  # an unusual module
                    pass

    @property  # type: ignore[misc]  # a class that shows another one, as weakref.proxy does
    def __class__(self) -> type:
        return type(self._load.real)

    def __getattr__(self, name: str) -> Any:
        try:
            if name == "get_code" and sys._getframe(1).f_globals.get("__name__") == "runpy":
                # `python -m watched` never calls exec_module: this is the last moment before
                # the code runs, and the loader runpy will put on the module is read after it.
                self._load.prepare()
                self._step_aside(None)
        except BaseException as error:
            if not swallowed(self._load.host, "preparing a program", error):
                raise
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
    except own_errors(AttributeError):
        return None
