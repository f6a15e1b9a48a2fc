"""Extension modules: guarded where every one of them is mapped, whoever asks for it.

The patch stays in place for as long as the guard is installed and decides per call. A window
that opened and closed around an import would be left open by two threads that overlap.
"""

from __future__ import annotations

import sys
from _frozen_importlib_external import ExtensionFileLoader  # light: `importlib` is not

from cudaguard.core.dlopen import getdlopenflags
from cudaguard.core.frames import hide_frame, of_import_system
from cudaguard.core.loader import (
    NOTHING,
    brought,
    call_each,
    close_each,
    explained,
    here,
    look_at_failure,
    open_each,
    slots_or_nothing,
)
from cudaguard.files.calls import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from cudaguard.core.loader import Host

_STANDARD_LIBRARY = f"{os.sep}lib-dynload{os.sep}"


class ExtensionPatch:
    """Guards ``ExtensionFileLoader.create_module``, where every extension is mapped.

    torch's JIT builds come this way: ``spec_from_file_location`` and ``module_from_spec``
    ask no finder.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.watched: Mapping[str, object] = {}
        # Around those of the standard library, which are passed by otherwise.
        self.pythons_own = NOTHING
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

        @of_import_system
        def create_module(loader: ExtensionFileLoader, spec: ModuleSpec) -> ModuleType:
            try:
                # What is no text is refused by Python, in its own words.
                name, file = getattr(spec, "name", None), getattr(spec, "origin", None)
                if self._ours is create_module and type(name) is str and type(file) is str:
                    if _STANDARD_LIBRARY not in file:
                        return self._create(original, loader, spec)
                    if self.pythons_own is not NOTHING:
                        return self._create_pythons_own(original, loader, spec)
                return original(loader, spec)
            except BaseException as error:
                hide_frame(error)
                raise

        for attribute in ("__module__", "__qualname__", "__doc__"):
            setattr(create_module, attribute, getattr(original, attribute, None))
        create_module.__wrapped__ = original  # type: ignore[attr-defined]  # inspect follows it
        self._ours = create_module
        ExtensionFileLoader.create_module = create_module  # type: ignore[assignment,method-assign]  # the patch

    def take_down(self) -> bool:
        """Put the class back; False if someone else has patched on top, and ours passes through."""
        clean = self._original is None or ExtensionFileLoader.create_module is self._ours
        if self._original is not None and clean:
            ExtensionFileLoader.create_module = self._original  # type: ignore[assignment,method-assign]  # the patch
        self._ours = self._original = None
        return clean

    @of_import_system
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
        outer, here.mapping = getattr(here, "mapping", None), spec
        try:
            try:
                module = original(loader, spec)
            except ImportError as error:
                if not brought(host, spec, error):
                    raise
                module = sys.modules.get(name) if absent else None
                if module is None or not _is_same_file(module, spec):
                    module = original(loader, spec)
        except BaseException as error:
            here.mapping = outer
            better = None
            if isinstance(error, ImportError):
                look_at_failure(host, error)
                better = explained(host, spec, error)
            close_each(host, closes, error)
            if better is not None:
                raise better from error
            hide_frame(error)
            raise
        here.mapping = outer
        close_each(host, closes, None)
        call_each(host, (host.after_mapping,), spec.origin or "", name, getdlopenflags())
        return module

    @of_import_system
    def _create_pythons_own(
        self,
        original: Callable[[ExtensionFileLoader, ModuleSpec], ModuleType],
        loader: ExtensionFileLoader,
        spec: ModuleSpec,
    ) -> ModuleType:
        closes = open_each(self.host, self.pythons_own, spec)
        try:
            module = original(loader, spec)
        except BaseException as error:
            close_each(self.host, closes, error)
            hide_frame(error)
            raise
        close_each(self.host, closes, None)
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
