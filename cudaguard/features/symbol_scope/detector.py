"""Sees what comes into the global symbol scope, and what is mapped then.

Nothing else is read before a library is in that scope that does not belong there.
"""

from __future__ import annotations

from cudaguard.elf.process import Memory, at_start, read_scope
from cudaguard.files import os, own_errors
from cudaguard.hooks.barrier import NOTHING, ImportCallbacks
from cudaguard.model import TYPE_CHECKING
from cudaguard.system.loader_list import LoaderNews
from cudaguard.system.runtimes import is_meant_for_all

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from cudaguard.core.detection import NativeLoad
    from cudaguard.core.dispatch import Dispatch
    from cudaguard.elf.process import Library, Scope
    from cudaguard.features.symbol_scope.findings import Interposer
    from cudaguard.features.symbol_scope.interposers import ScopeJudge
    from cudaguard.system.facts import Packages


class ScopeDetector:
    """Watches the global scope for libraries of others, and who uses their symbols."""

    def __init__(self, core: Dispatch) -> None:
        self._core = core
        self._news = LoaderNews()
        self._seen = b""  # the search list as it was looked at last
        # What was made of it, and what is known of its interposers by file: in one step for others.
        self._known: tuple[Scope | None, dict[str, Interposer]] = None, {}
        self._belongs: set[Library] = set()  # came with the program, before the guard
        self._judge: ScopeJudge | None = None

    def begin(self) -> None:
        """Look for the first time; what it finds was not seen to come."""
        self.mapped(None, "guard")

    def mapping(self, path: str, extension: str) -> None:
        """Judge what is about to be mapped; `extension` is empty for a load by ctypes.

        Raises:
            ImportOrderError: in `strict`, from an import.
        """
        scope, interposers = self._known
        if self._judge and scope and interposers:
            self._judge.before(path, extension, scope, interposers)

    def forget(self) -> None:
        """Let Python's own extensions pass again."""
        own = self._core.extensions.pythons_own
        around = tuple(callback for callback in own.around if callback != self._mapping_of_python)
        self._core.extensions.pythons_own = ImportCallbacks((), around) if around else NOTHING

    def mapped(self, load: NativeLoad | None, since: str = "unseen") -> None:
        """Look at what has come into the scope, and at what is mapped besides."""
        scope, interposers = self._known
        now, new = LoaderNews.everything.scope, self._news.libraries()
        come: list[Library] = []
        if now and now != self._seen:
            before = scope.interposers if scope is not None else ()
            try:
                scope = self._read(now, since)
            except own_errors(OSError):  # changed while it was read: the next look will find it
                return
            self._seen = now
            if come := [library for library in scope.interposers if library not in before]:
                from cudaguard.features.symbol_scope.interposers import ScopeJudge, new_interposers

                interposers = {**interposers, **new_interposers(self._core, come, load, since)}
                if self._judge is None:
                    self._judge = ScopeJudge(self._core)
                    around = (*self._core.extensions.pythons_own.around, self._mapping_of_python)
                    self._core.extensions.pythons_own = ImportCallbacks((), around)
            self._known = scope, interposers
        if scope is None or not scope.interposers or self._judge is None:
            return
        if come:  # what was mapped before them was bound before, and what came with them is theirs
            places = [new.index(library) for library in come if library in new]
            new = new[min(places) :] if places else []
        members, judged = {*scope.interposers, *scope.meant}, self._judge.judged
        unseen = [lib for lib in new if lib not in members and lib.file not in judged]
        if unseen:
            self._judge.after(unseen, scope, interposers)

    def _mapping_of_python(self, spec: ModuleSpec) -> None:
        self.mapping(spec.origin or "", spec.name)

    def _read(self, scope: bytes, since: str) -> Scope:
        packages: list[Packages] = []

        def belongs(library: Library) -> bool:
            name = os.path.basename(library.path)
            if is_meant_for_all(name) or library in self._belongs:
                return True
            # There from the start and in no package: it came with the program around Python.
            if since == "guard":
                from cudaguard.system.facts import Packages

                packages[:] = packages or [Packages()]
                if not packages[0].of(library.file):
                    self._belongs.add(library)
                    return True
            return False

        preloaded = at_start("LD_PRELOAD").replace(":", " ").split()
        with Memory() as memory:
            return read_scope(memory, scope, tuple(map(os.path.basename, preloaded)), belongs)
