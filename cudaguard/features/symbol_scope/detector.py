"""Sees that a library put a copy of other people's symbols into the global scope.

Each family of symbols has a few names that tell (`cudaguard.system.symbol_families`). Whenever a
library was loaded, their owners are compared with those of the last look; nothing else is read.
"""

from __future__ import annotations

from cudaguard.core.patterns import matches
from cudaguard.elf.process import Library, Memory
from cudaguard.elf.symbols import GlobalNames
from cudaguard.errors import ImportOrderError
from cudaguard.files import os, own_errors
from cudaguard.hooks.caller import caller_frame, describe
from cudaguard.system.loader_list import LoaderNews
from cudaguard.system.modules import has_ctypes
from cudaguard.system.symbol_families import FAMILIES, LEGITIMATE_OWNERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.core.detection import NativeLoad
    from cudaguard.core.dispatch import Dispatch

CANARIES: tuple[tuple[str, str], ...] = tuple(
    (name, key) for key, family in FAMILIES.items() for name in family.canaries
)
_NAMES = tuple(name.encode() for name, _ in CANARIES)


class ScopeDetector:
    """Compares where the canary names are with where they were at the last look."""

    def __init__(self, core: Dispatch) -> None:
        self._core = core
        self._names = GlobalNames(_NAMES)
        # The search list as it was looked at last, and how often names had been hidden.
        self._known = (b"", 0)
        self._owners: list[Library | None] = [None] * len(_NAMES)

    def begin(self, since: str) -> None:
        """Look for the first time; what it finds was not seen to come (see `hijacked`)."""
        self._look(None, since)

    def unseen(self) -> None:
        """Look at what has moved past us."""
        self._look(None, "unseen")

    def mapped(self, load: NativeLoad) -> None:
        """Look at what a load has moved."""
        self._look(load, "")

    def _look(self, load: NativeLoad | None, since: str) -> None:
        """Look once, and tell of what has moved.

        Raises:
            ImportOrderError: in `strict`, from an import.
        """
        before, now = self._owners, self._look_up()
        if now == before:
            return
        self._owners = now
        moved = [
            (name, family, is_.file, was.file if was else "")
            for (name, family), was, is_ in zip(CANARIES, before, now)
            if is_ and is_ != was
        ]
        owners = {new for _, _, new, _ in moved if new}  # else they went to the program itself
        if any(not matches(os.path.basename(new), LEGITIMATE_OWNERS) for new in owners):
            from cudaguard.features.symbol_scope.hijack import judge

            judge(self._core, moved, load, since)

    def _look_up(self) -> list[Library | None]:
        there = LoaderNews.everything
        if not there.has_scope:
            return _asked()
        scope, hidden = there.scope, there.hidden
        if not scope or (scope, hidden) == self._known:
            return self._owners
        try:
            with Memory() as memory:
                if hidden != self._known[1]:
                    self._names.forget()
                owners = self._names.owners(memory, scope)
        except own_errors(OSError):  # changed while it was read: the next look will find it
            return self._owners
        self._known = scope, hidden
        return owners


def _asked() -> list[Library | None]:
    """Ask the loader, where its own search list is not as expected and ctypes is there."""
    if not has_ctypes():
        return [None] * len(_NAMES)
    from cudaguard.elf.resident import Resident

    with Resident() as resident:
        program = resident.program
        found = {name: resident.address(program, name) for name in _NAMES}
        return [
            Library(resident.owner(program, name), address, 0) if address else None
            for name, address in found.items()
        ]


class RuntimeDetector:
    """Tells of extensions that were linked with -static-libstdc++ and show that runtime to all."""

    def __init__(self, core: Dispatch) -> None:
        self._core = core

    def runtime_exported(self, extension: str, library: str, names: tuple[str, ...]) -> None:
        """Tell of an extension that exports the ``std::...::id`` objects of a C++ runtime.

        Raises:
            ImportOrderError: in `strict`.
        """
        from cudaguard.features.symbol_scope.findings import static_runtime

        frame = caller_frame()
        finding = static_runtime(extension, library, names, describe(frame))
        stop = ImportOrderError(finding.as_error(), name=extension, path=library)
        self._core.reporter.found(finding, frame, stop=stop)
