"""The finder on ``sys.meta_path``: one dictionary look-up for modules nobody watches."""

from __future__ import annotations

import os
import sys
from _thread import _local

from cudaguard.hook.frames import hide_frame, of_import_system
from cudaguard.hook.loader import GuardLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from cudaguard.hook.loader import Host


class EveryTopLevel(dict[str, object]):
    """The watched names, and besides them every top-level module but Python's own and ours."""

    def __init__(self, watched: Mapping[str, object]) -> None:
        super().__init__(watched)
        self._own = _standard_library() | {__name__.partition(".")[0]}

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (
            isinstance(name, str) and "." not in name and name not in self._own
        )


def _standard_library() -> frozenset[str]:
    names = getattr(sys, "stdlib_module_names", None)
    if names is None:  # Python 3.9
        folder = os.path.dirname(os.__file__)
        files = [*os.listdir(folder), *os.listdir(os.path.join(folder, "lib-dynload"))]
        names = {*sys.builtin_module_names, *(file.partition(".")[0] for file in files)}
    return frozenset(names)


class GuardFinder:
    """Lets the other finders find a watched module and wraps the loader they give.

    Duck-typed, since ``importlib.abc`` costs more than the whole guard.

    Args:
        host: Decides what happens around each import.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        # Replaced as a whole, never changed in place: other threads read it without a lock.
        self.watched: Mapping[str, object] = {}
        self._thread = _local()

    @of_import_system
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec the other finders give for a watched module, with our loader on it."""
        if name not in self.watched:
            return None
        # Per thread and per name: another hook that delegates may call back here, while
        # another thread's import of the same module must not pass unguarded.
        busy: set[str] = self._thread.__dict__.setdefault("busy", set())
        if name in busy:
            return None
        busy.add(name)
        try:
            # Not importlib.util.find_spec: it imports parents, takes their locks, and returns
            # the old spec during a reload.
            spec = self._first_answer(name, path, target)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            busy.discard(name)
        loader: Any = None if spec is None else spec.loader
        # Left alone: namespace packages (no loader), loaders that know only load_module, and
        # a spec handed out before that is wrapped already.
        if spec is not None and hasattr(loader, "exec_module") and type(loader) is not GuardLoader:
            spec.loader = GuardLoader(loader, spec, self.host)  # type: ignore[assignment]  # duck-typed
        return spec

    @of_import_system
    def _first_answer(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        """Ask the finders behind this one; those in front have been asked already."""
        finders = list(sys.meta_path)
        try:
            for finder in finders[self._place(finders) + 1 :]:
                find = getattr(finder, "find_spec", None)
                if find is not None:
                    spec: ModuleSpec | None = find(name, path, target)
                    if spec is not None:
                        return spec
                elif sys.version_info < (3, 12):
                    find = getattr(finder, "find_module", None)
                    if find is not None and find(name, path) is not None:
                        return None  # only importlib knows how to use it; it asks again
        except BaseException as error:
            hide_frame(error)
            raise
        return None

    # --- our place on sys.meta_path -------------------------------------------------
    #
    # The list is only ever replaced, not changed: another thread may be iterating it in the
    # middle of an import, and would skip a finder, and with it a module that is there. Other
    # finders are compared by identity; their __eq__ may say anything.

    @property
    def is_up(self) -> bool:
        """Does this finder stand on ``sys.meta_path``?"""
        return self._place(sys.meta_path) >= 0

    @property
    def is_first(self) -> bool:
        """Is it the first to be asked?"""
        return self._place(sys.meta_path) == 0

    def put_first(self) -> None:
        """Put it before all others."""
        if not self.is_up:
            sys.meta_path.insert(0, self)
            return
        sys.meta_path = [self, *(finder for finder in sys.meta_path if finder is not self)]

    def take_away(self) -> None:
        """Take it from the list; does nothing if it is not there."""
        if self.is_up:
            sys.meta_path = [finder for finder in sys.meta_path if finder is not self]

    def _place(self, finders: Sequence[object]) -> int:
        for index, finder in enumerate(finders):
            if finder is self:
                return index
        return -1
