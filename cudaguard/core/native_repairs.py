"""Calls the repairs of the features where something native is mapped; see `core.repairs`."""

from __future__ import annotations

import sys

from cudaguard.core.patterns import fixed_part, matches
from cudaguard.files import os
from cudaguard.hooks.dlopen import NOT_FOUND

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from importlib.machinery import ModuleSpec

    from cudaguard.core.registry import RuleEntry
    from cudaguard.core.repairs import Repairs
    from cudaguard.core.request import Outcomes, Request

# What the loader says of a library that is older than the one that others were built with.
_OUTDATED = (": undefined symbol: ", "' not found (required by ")


class NativeRepairs:
    """What the rules in force want done when a library is opened or an extension is mapped.

    Made again when other rules come into force.
    """

    def __init__(self, repairs: Repairs) -> None:
        self._repairs = repairs
        self._native: dict[str, tuple[tuple[RuleEntry, str, str], ...]] = {}
        self._starts: tuple[str, ...] | None = None  # of what rules say that is needed
        self._first: list[tuple[RuleEntry, str, str]] | None = None  # what has not been needed yet

    def mapping(self, spec: ModuleSpec, needed: tuple[str, ...], masked_for: str) -> None:
        """Have done what is to be done before an extension is mapped."""
        self.provide(spec, needed)
        self.choose(spec.origin or "", spec.name, needed)
        if self._first is None:
            self._first = list(self._with_moment("first"))
        due = [item for item in self._first if item[2] in needed]
        if due:  # on Windows those that come later may need a newer one
            done = [item for item in due if not item[0].is_for_windows]
            self._first = [item for item in self._first if item not in done]
        for one, entry, _ in due:
            self._map(entry, one, spec)
        for one, entry, _ in self._with_moment("masking") if masked_for else ():
            if _covers(one, masked_for):
                self._map(entry, one, spec)

    def choose(self, file: str, name: str, needed: Iterable[str]) -> None:
        """Have the right one opened of several copies of what is about to be mapped.

        `file` is what needs the libraries, empty for a load by that very name; `name` what to call
        it.
        """
        for one, entry, value in self._with_moment("choosing"):
            for library in needed:
                if library.startswith(fixed_part(value)) and matches(library, (value,)):
                    self._repairs.do(entry, [one], name, file, library, can_raise=True)

    def provide(self, spec: ModuleSpec, needed: tuple[str, ...]) -> bool:
        """Have brought what an extension needs; True if something was done."""
        done = 0
        entries = self._with_moment("needing")
        # The fixed parts first: nearly no library has them, and matching is not light.
        if self._starts is None:
            self._starts = tuple(fixed_part(value) for _, _, value in entries)
        needed = tuple(name for name in needed if name.startswith(self._starts))
        for one, entry, value in entries if needed else ():
            if one.watch[0] not in sys.modules:
                fitting = tuple(name for name in needed if matches(name, (value,)))
                if fitting:
                    done += self._map(entry, one, spec, fitting)
        return done > 0

    def provide_after(self, spec: ModuleSpec, error: ImportError) -> bool:
        """Have brought what an extension was refused for; True if something was done.

        What the extension needs itself was seen to before it was mapped. The loader looks for all
        libraries before it runs anything of them: after such a refusal a second try is a first one.
        An error that the extension's own code lets pass says nothing of this file, or of none.
        """
        missing, found, _ = str(error).partition(NOT_FOUND)
        refused, file = error.path, spec.origin
        if file is None or not isinstance(refused, str):
            return False
        if os.path.abspath(refused) != os.path.abspath(file):
            return False
        from cudaguard.elf.reader import read_elf

        is_news = bool(found) and missing not in read_elf(file).needed
        return (is_news and self.provide(spec, (missing,))) or self.fetch(file, spec.name, error)

    def fetch(self, file: str, name: str, error: Exception) -> bool:
        """Have opened what a file, no bare name, was refused for; True if something was done."""
        missing, found, _ = str(error).partition(NOT_FOUND)
        if os.sep not in file or (found and os.sep in missing):
            return False
        if not found and not any(words in str(error) for words in _OUTDATED):
            return False
        return any(
            self._repairs.do(entry, [one], name, file, missing if found else "", can_raise=True)
            for one, entry, value in self._with_moment("lacking")
            if not found or matches(missing, (value,))
        )

    def _map(self, entry: str, one: RuleEntry, spec: ModuleSpec, *more: object) -> int:
        return self._repairs.do(entry, [one], spec.name, spec.origin, *more, can_raise=True)

    def scope_of_library(self, library: str) -> tuple[bool, Callable[[], None]] | None:
        """Decide about a library to be loaded with RTLD_GLOBAL (see `LibraryLoads`)."""
        name = os.path.basename(library)
        fitting = [item for item in self._with_moment("opening") if matches(name, (item[2],))]
        return self._scope(fitting, library, name, is_file=True)

    def scope_of_extensions(self, module: str) -> tuple[bool, Callable[[], None]] | None:
        """Decide about extensions to be loaded with RTLD_GLOBAL (see `LoaderFlags`)."""
        fitting = [item for item in self._with_moment("opening") if _covers(item[0], module)]
        subject = f"extension modules of {module.partition('.')[0]}"
        return self._scope(fitting, module, subject, is_file=False)

    def _scope(
        self, fitting: list[tuple[RuleEntry, str, str]], source: str, subject: str, *, is_file: bool
    ) -> tuple[bool, Callable[[], None]] | None:
        repairs = self._repairs
        for one, entry, _ in fitting:
            for request in repairs.requests(entry, [one], source):
                scope = repairs.table.resolve(entry)(request, subject, is_file)
                if scope is not None:
                    return scope[0], self._opened(request, scope[1])
        return None

    def _opened(self, request: Request, outcomes: Outcomes) -> Callable[[], None]:
        def opened() -> None:
            self._repairs.tell(request, outcomes)

        return opened

    def _with_moment(self, moment: str) -> tuple[tuple[RuleEntry, str, str], ...]:
        """Return rule, entry and the verb's value of all actions that have a part at a moment."""
        found = self._native.get(moment)
        if found is None:
            verbs = self._repairs.table.index.VERBS
            found = self._native[moment] = tuple(
                (one, verbs[verb][moment], str(value))
                for one in self._repairs.registry.entries
                for verb, value in one.does
                if moment in verbs[verb]
            )
        return found


def _covers(one: RuleEntry, module: str) -> bool:
    """Return True if the rule watches the module or a package around it."""
    return any(module == name or module.startswith(f"{name}.") for name in one.watch)
