"""Sees what comes into the global symbol scope, and what is mapped while it is there.

Nothing else is read before a library is in that scope that does not belong there.
"""

from __future__ import annotations

from cudaguard.elf.process import Memory, at_start
from cudaguard.files import os, own_errors
from cudaguard.hooks.barrier import NOTHING, ImportCallbacks
from cudaguard.system.loader_list import LoaderNews

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from cudaguard.core.detection import NativeLoad
    from cudaguard.core.dispatch import Dispatch
    from cudaguard.elf.interposition import Scope
    from cudaguard.elf.process import Library
    from cudaguard.features.symbol_scope.findings import Stranger
    from cudaguard.features.symbol_scope.strangers import Victims

_ID = "CG812"


class ScopeDetector:
    """Knows the strangers in the global scope, and has others judged while there are some."""

    def __init__(self, core: Dispatch) -> None:
        self._core = core
        self._news = LoaderNews()
        self._seen = b""  # the search list as it was looked at last
        # What was made of it, and what is known of its strangers by file: in one step for others.
        self._known: tuple[Scope | None, dict[str, Stranger]] = None, {}
        self._belongs: set[Library] = set()  # came with the program, before the guard
        self._victims: Victims | None = None

    def begin(self) -> None:
        """Look for the first time; what it finds was not seen to come."""
        self._look(None, "guard")

    def unseen(self) -> None:
        """Look at what has come past us."""
        self._look(None, "unseen")

    def mapped(self, load: NativeLoad) -> None:
        """Look at what has come with a load."""
        self._look(load, "")

    def mapping(self, path: str, extension: str) -> None:
        """Judge what is about to be mapped; `extension` is empty for a load by ctypes.

        Raises:
            ImportOrderError: in `strict`, from an import.
        """
        scope, strangers = self._known
        if self._victims and scope and strangers and _ID not in self._core.reporter.silenced:
            self._victims.before(path, extension, scope, strangers)

    def forget(self) -> None:
        """Let Python's own extensions pass again."""
        own = self._core.extensions.pythons_own
        around = tuple(one for one in own.around if one != self._mapping_of_python)
        self._core.extensions.pythons_own = ImportCallbacks((), around) if around else NOTHING

    def _look(self, load: NativeLoad | None, since: str) -> None:
        scope, strangers = self._known
        now, new = LoaderNews.everything.scope, self._news.libraries()
        come: list[Library] = []
        if now and now != self._seen:
            before = scope.strangers if scope is not None else ()
            try:
                scope = self._read(now, since)
            except own_errors(OSError):  # changed while it was read: the next look will find it
                return
            self._seen = now
            come = [library for library in scope.strangers if library not in before]
            if come:
                from cudaguard.features.symbol_scope.strangers import Victims, strangers_among

                strangers = {**strangers, **strangers_among(self._core, come, load, since)}
                if self._victims is None:
                    self._victims = Victims(self._core)
                    own = self._core.extensions.pythons_own
                    around = (*own.around, self._mapping_of_python)
                    self._core.extensions.pythons_own = ImportCallbacks((), around)
            self._known = scope, strangers
        if scope is None or not scope.strangers or self._victims is None:
            return
        if come:  # what was mapped before them was bound before, and what came with them is theirs
            places = [new.index(library) for library in come if library in new]
            new = new[min(places) :] if places else []
        members, judged = {*scope.strangers, *scope.meant}, self._victims.judged
        unseen = [one for one in new if one not in members and one.file not in judged]
        if unseen and _ID not in self._core.reporter.silenced:
            self._victims.after(unseen, scope, strangers)

    def _mapping_of_python(self, spec: ModuleSpec) -> None:
        self.mapping(spec.origin or "", spec.name)

    def _read(self, scope: bytes, since: str) -> Scope:
        from cudaguard.elf.interposition import read_scope
        from cudaguard.files import matches
        from cudaguard.system.facts import Packages
        from cudaguard.system.runtimes import GLOBAL_ON_PURPOSE

        packages: list[Packages] = []

        def belongs(library: Library) -> bool:
            name = os.path.basename(library.path)
            if matches(name, GLOBAL_ON_PURPOSE) or library in self._belongs:
                return True
            # There from the start and in no package: it came with the program around Python.
            if since == "guard":
                packages[:] = packages or [Packages()]
                if not packages[0].of(library.file):
                    self._belongs.add(library)
                    return True
            return False

        preloaded = at_start("LD_PRELOAD").replace(":", " ").split()
        with Memory() as memory:
            names = tuple(map(os.path.basename, preloaded))
            return read_scope(memory, scope, names, belongs)
