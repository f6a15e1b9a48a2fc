"""Extension modules: guarded where every one of them is mapped, whoever asks for it.

It is decided per call. A patch that came and went around an import would be left in place by two
threads that overlap.
"""

from __future__ import annotations

import sys

from cudaguard.files import os, own_errors
from cudaguard.hooks.barrier import (
    NOTHING,
    ask,
    barrier,
    call_each,
    callbacks_or_nothing,
    close_each,
    open_each,
    swallowed,
)
from cudaguard.hooks.caller import hide_frame, of_import_system
from cudaguard.hooks.dlopen import getdlopenflags
from cudaguard.hooks.loader import here
from cudaguard.kernel import LIB_DYNLOAD
from cudaguard.kernel.loads import watched_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _frozen_importlib_external import ExtensionFileLoader
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from cudaguard.hooks.barrier import Close, Host


class _Mapping:
    """An extension that is being mapped, and what is to happen around it."""

    __slots__ = ("_is_absent", "_is_pythons", "closes", "copy", "host", "module", "spec")

    def __init__(self, host: Host, spec: ModuleSpec, *, is_pythons: bool = False) -> None:
        self.host, self.spec = host, spec
        self._is_pythons = is_pythons
        self._is_absent = spec.name not in sys.modules
        self.closes: Sequence[Close] = ()
        self.module: ModuleType | None = None  # once a prerequisite has imported this very file
        # What is mapped instead, and what to call then.
        self.copy: tuple[str, Callable[[bool], None]] | None = None

    @of_import_system
    def begin(self, watched: str) -> None:
        """Do what comes before, as part of a watched module or for itself."""
        host, spec = self.host, self.spec
        callbacks = callbacks_or_nothing(host, watched) if watched else NOTHING
        # The package of a part has had its turn, and so has what comes through the finder.
        is_part = spec.name.startswith(watched + ".")
        is_ready = here.__dict__.pop("prepared", None) is spec or is_part
        if callbacks.before and not is_ready:
            call_each(host, callbacks.before, spec)
        self.copy = ask(host, "preparing the load of an extension", host.before_mapping, spec)
        self.module = self.come()
        if self.module is not None:
            self.let_go()
        else:
            self.closes = open_each(host, callbacks, spec)

    @of_import_system
    def map_copy(
        self,
        original: Callable[[ExtensionFileLoader, ModuleSpec], ModuleType],
        loader: ExtensionFileLoader,
    ) -> ModuleType | None:
        """Have the original function map what is to be mapped instead; None if that fails."""
        path, copy = self.copy[0] if self.copy else "", self._spec_of_copy()
        if copy is None:
            return None
        try:
            module = original(loader, copy)
        except BaseException as error:
            is_refused = isinstance(error, ImportError) and error.path == path
            self.let_go(is_mapped=not is_refused)  # otherwise the module itself has raised it
            if is_refused:
                return None
            hide_frame(error)
            raise
        self.let_go(is_mapped=True)
        if getattr(module, "__file__", None) == path:  # set by modules of one phase
            module.__file__ = self.spec.origin
        return module

    @barrier("preparing the load of a copy")
    def _spec_of_copy(self) -> ModuleSpec | None:
        fields = getattr(self.spec, "__dict__", None)
        if self.copy is None or fields is None:  # a class of the program's, with slots
            return None
        copy = type(self.spec).__new__(type(self.spec))
        vars(copy).update(fields, origin=self.copy[0])
        return copy

    def let_go(self, *, is_mapped: bool = False) -> None:
        """Say of a copy that is to be mapped instead, if there is one, whether it was mapped."""
        copy, self.copy = self.copy, None
        if copy is not None:
            call_each(self.host, (copy[1],), is_mapped)

    @barrier("looking for a module that has come")
    def come(self) -> ModuleType | None:
        """Return the module if it has come from this very file meanwhile."""
        module = sys.modules.get(self.spec.name) if self._is_absent else None
        return module if module is not None and _is_same_file(module, self.spec) else None

    @barrier("looking for the library that an extension lacks", default=False)
    def may_try_again(self, error: ImportError) -> bool:
        """Return True if what was missing has come meanwhile, or a copy that has it."""
        self.let_go()
        file = self.host.bring_missing(self.spec, error)
        if file and file != self.spec.origin:
            self.copy = file, lambda _: None
        return bool(file)

    @barrier("looking at a load that has failed")
    def failed(self, error: BaseException) -> ImportError | None:
        """Look at why the load has failed; return an error that is better than the loader's."""
        self.let_go()
        host, better = self.host, None
        if isinstance(error, ImportError) and not self._is_pythons:
            why = "looking at why an extension was not loaded"
            ask(host, why, host.load_failed, error, "", prints=True)
            better = ask(host, why, host.explained, self.spec, error, prints=True)
        if self.closes:
            close_each(host, self.closes, error)
        return better

    @barrier("looking at a library that was loaded")
    def ended(self) -> None:
        """Look at what has been loaded."""
        self.let_go()
        close_each(self.host, self.closes, None)
        if not self._is_pythons:
            origin, name = self.spec.origin or "", self.spec.name
            call_each(self.host, (self.host.after_mapping,), origin, name, getdlopenflags())


class ExtensionLoads:
    """Guards ``ExtensionFileLoader.create_module``, where every extension is mapped.

    torch's JIT builds come this way: ``spec_from_file_location`` and ``module_from_spec``
    ask no finder.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        # Around those of the standard library, which are passed by otherwise.
        self.pythons_own = NOTHING

    @of_import_system
    def load(
        self,
        original: Callable[[ExtensionFileLoader, ModuleSpec], ModuleType],
        loader: ExtensionFileLoader,
        spec: ModuleSpec,
        refused: ImportError | None = None,
    ) -> ModuleType:
        """Map an extension by the original function, with all that is to happen around it."""
        try:
            mapping = self._begun(spec, is_refused=refused is not None)
        except BaseException as error:
            if not swallowed(self.host, "preparing the load of an extension", error):
                hide_frame(error)
                raise
            mapping = None
        if mapping is not None and mapping.module is not None:
            return mapping.module
        try:
            try:
                if refused is not None:
                    raise refused
                module = mapping.map_copy(original, loader) if mapping and mapping.copy else None
                if module is None:
                    module = original(loader, spec)
            except ImportError as error:
                if mapping is None or not mapping.may_try_again(error):
                    raise
                module = mapping.come() or mapping.map_copy(original, loader)
                if module is None:
                    module = original(loader, spec)
        except BaseException as error:
            better = None if mapping is None else mapping.failed(error)
            hide_frame(error)
            if better is not None:
                raise better from error
            raise
        if mapping is not None:
            mapping.ended()
        return module

    @of_import_system
    def _begun(self, spec: ModuleSpec, *, is_refused: bool) -> _Mapping | None:
        """Return the mapping of an extension, with all done that comes before; None for others'."""
        try:
            name, file = spec.name, spec.origin
        except own_errors(AttributeError):  # refused by Python, as what is no text, in its words
            return None
        if type(name) is not str or type(file) is not str:
            return None
        is_pythons = LIB_DYNLOAD in file
        mapping = _Mapping(self.host, spec, is_pythons=is_pythons)
        try:
            if is_pythons and not is_refused:
                mapping.closes = open_each(self.host, self.pythons_own, spec)
            elif not is_refused:
                mapping.begin(watched_name(name))
        except BaseException:
            mapping.let_go()
            raise
        return mapping

    def ended(self, spec: ModuleSpec) -> None:
        """Look at what has come with an extension that the kernel has let pass."""
        _Mapping(self.host, spec).ended()


def _is_same_file(module: ModuleType, spec: ModuleSpec) -> bool:
    try:
        return os.path.samefile(module.__spec__.origin, spec.origin)  # type: ignore[union-attr,arg-type]  # caught
    except own_errors(AttributeError, TypeError, ValueError, OSError):  # not from files
        return False
