"""Repairs: which of them have a part at a moment, and what becomes of what they report.

A feature does something at a moment (`MOMENTS`) for its verbs. Whether it may is tested here, once:
its `Request` has a `Permit`, and the outcomes that it yields are noted, told or raised here.
"""

from __future__ import annotations

import sys

from cudaguard.core.dlopen import NOT_FOUND, RTLD_GLOBAL
from cudaguard.core.loader import is_imported, is_under_way
from cudaguard.core.patterns import fixed_part, matches
from cudaguard.core.registry import Registry
from cudaguard.files import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from importlib.machinery import ModuleSpec
    from typing import Any

    from cudaguard.core.host import Close
    from cudaguard.core.registry import RuleEntry
    from cudaguard.core.replace import Replacements
    from cudaguard.core.reports import Reporter
    from cudaguard.core.request import Outcomes, Request, Scope
    from cudaguard.core.table import FeatureTable
    from cudaguard.model import Rule

# When a repair is called. What it is given is a `Request`, and at some moments more.
MOMENTS = {
    "before": "a watched module is about to be imported",
    "around": "its import begins; returns None, or what is called with its error, or None, at last",
    "after": "it was imported, or was there when the rule came into force: replaces attributes",
    "late": "it was there when the rule came into force; yields MISSED where that is too late",
    "mapping": "an extension is about to be mapped whose file the verb's pattern fits",
    "needing": "an extension is about to be mapped, or was refused, that needs a library which the "
    "pattern fits, while the watched module is not imported; is given the libraries",
    "masking": "an extension is about to be mapped without the RTLD_GLOBAL that was asked for",
    "opening": "a library that the pattern fits, or an extension of the watched package, is to be "
    "opened with RTLD_GLOBAL; is given the `Opening`, returns a `Scope` or None",
}


class Repairs:
    """Calls the repairs of all features; one per process.

    What a request needs is imported with the first one: most processes have none.

    Args:
        reporter: Is told.
        replacements: Has what is replaced.
        catch_up: Looks at what was loaded past us so far.
        table: Has the repairs. Given: where a program has forgotten what it had imported, the one
            that this module would import is another.
    """

    def __init__(
        self,
        reporter: Reporter,
        replacements: Replacements,
        catch_up: Callable[[], None],
        table: FeatureTable,
    ) -> None:
        self._reporter, self._replacements, self._catch_up = reporter, replacements, catch_up
        self._table = table
        self._registry = Registry((), {})
        self._checked: set[tuple[str, str, bool]] = set()  # module, rule, could it be repaired?
        self._native: dict[str, tuple[tuple[RuleEntry, str, str], ...]] = {}
        self._starts: tuple[str, ...] | None = None  # of what rules say that is needed

    def configure(self, registry: Registry) -> None:
        """Take note of the rules that are in force from now on."""
        self._registry, self._native, self._starts = registry, {}, None

    # --- around the import of a module ----------------------------------------------

    def before(self, name: str) -> list[Callable[[ModuleSpec], None]]:
        """Return what is to be called before a module is imported."""
        if not RTLD_GLOBAL:
            return [self._tell_unsupported]
        return [
            lambda spec, do=do: self._import(*do, spec, can_raise=True)  # type: ignore[misc]
            for do in self._of_module("before", name)
        ]

    def around(self, name: str) -> list[Callable[[ModuleSpec], Close | None]]:
        """Return what is to be called when the import of a module begins."""
        return [self._around(name, *do) for do in self._of_module("around", name)]

    def _around(
        self, name: str, entry: str, entries: list[RuleEntry]
    ) -> Callable[[ModuleSpec], Close | None]:
        def open_around(spec: ModuleSpec) -> Close | None:
            if spec.name != name:  # a part of the package
                return None
            closes = [
                (request, close)
                for request in self._requests(entry, entries, spec.name, spec.origin)
                for close in [self._table.resolve(entry)(request)]
                if close is not None
            ]

            def close(error: BaseException | None) -> None:
                for request, end in closes:
                    self._tell(request, end(error))

            return close if closes else None

        return open_around

    def after(self, name: str) -> list[Callable[[ModuleSpec, object], None]]:
        """Return what is to be called when a module was imported."""
        return [
            lambda spec, _, do=do: self._import(*do, spec)  # type: ignore[misc]
            for do in self._of_module("after", name)
        ]

    def _of_module(self, moment: str, name: str) -> Iterator[tuple[str, list[RuleEntry]]]:
        own = [e for e in self._registry.by_module.get(name, ()) if e.does and RTLD_GLOBAL]
        verbs = {verb for entry in own for verb, _ in entry.does}
        for entry, its in self._table.moments(moment, verbs).items() if own else ():
            yield entry, [e for e in own if any(verb in its for verb, _ in e.does)]

    def _tell_unsupported(self, spec: ModuleSpec) -> None:
        """Say which repairs of a module this platform has no means for."""
        from cudaguard.core import messages
        from cudaguard.core.decide import applies
        from cudaguard.core.verbs import toml_text
        from cudaguard.system.facts import Facts

        for rule in self._registry.rules_of(spec.name):
            for action in rule.actions if applies(rule, Facts()) else ():
                self._reporter.found(messages.unsupported(rule, toml_text(action)))

    def _import(
        self, entry: str, entries: Iterable[RuleEntry], spec: ModuleSpec, *, can_raise: bool = False
    ) -> None:
        for request in self._requests(entry, entries, spec.name, spec.origin, can_raise=can_raise):
            self._tell(request, self._table.resolve(entry)(request))

    def _requests(
        self,
        entry: str,
        entries: Iterable[RuleEntry],
        name: str,
        path: str | None = None,
        **how: bool,
    ) -> Iterator[Request]:
        """Yield what the rules ask for whose conditions hold; nothing once the guard is down."""
        from cudaguard.core.decide import applies
        from cudaguard.system.facts import Facts

        its = self._table.index.VERBS
        for one in entries:
            if self._reporter.mode != "off" and applies(one.rule, Facts()):
                verbs = tuple(verb for verb, _ in one.does if entry in its[verb].values())
                yield self.request(one.rule, verbs, name, path, **how)

    def request(self, *asked: Any, **more: Any) -> Request:
        """Return a request, with the arguments of `Request` from the rule on."""
        from cudaguard.core.request import Request

        return Request(self._reporter, self._replacements, self._catch_up, *asked, **more)

    def _tell(self, request: Request, outcomes: Outcomes | None) -> int:
        """Tell the outcomes; return how much was done."""
        from cudaguard.core.request import MISSED, Done

        done = 0
        for outcome in outcomes or ():
            if outcome is not MISSED:
                request.tell(outcome)
                done += isinstance(outcome, Done)
        return done

    # --- where something is mapped --------------------------------------------------

    def mapping(self, spec: ModuleSpec, needed: tuple[str, ...], masked_for: str) -> None:
        """Have done what is to be done before an extension is mapped.

        Args:
            spec: The extension, with a file.
            needed: The libraries that it names.
            masked_for: The module whose RTLD_GLOBAL was taken from the flags in force.
        """
        self.provide(spec, needed)
        name = os.path.basename(spec.origin or "")
        for one, entry, _ in self._with_moment("masking") if masked_for else ():
            if _covers(one, masked_for):
                self._map(entry, one, spec)
        for one, entry, value in self._with_moment("mapping"):
            if _covers(one, spec.name) and matches(name, (value,)):
                self._map(entry, one, spec)

    def provide(self, spec: ModuleSpec, needed: tuple[str, ...]) -> bool:
        """Have brought what an extension needs; True if something was done.

        Args:
            spec: The extension, with a file.
            needed: Names of libraries.
        """
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
        if not found or file is None or not isinstance(refused, str):
            return False
        if os.path.abspath(refused) != os.path.abspath(file):
            return False
        from cudaguard.elf.reader import read_elf

        return missing not in read_elf(file).needed and self.provide(spec, (missing,))

    def _map(self, entry: str, one: RuleEntry, spec: ModuleSpec, *more: Any) -> int:
        return sum(
            self._tell(request, self._table.resolve(entry)(request, *more))
            for request in self._requests(entry, [one], spec.name, spec.origin, can_raise=True)
        )

    def scope_of_library(self, library: str) -> tuple[bool, Callable[[], None]] | None:
        """Decide about a library to be loaded with RTLD_GLOBAL (see `core.dlopen.CtypesPatch`)."""
        name = os.path.basename(library)
        fitting = [
            (one, entry)
            for one, entry, value in self._with_moment("opening")
            if matches(name, (value,))
        ]
        return self._scope(fitting, library, name, is_file=True)

    def scope_of_extensions(self, module: str) -> tuple[bool, Callable[[], None]] | None:
        """Decide about extensions to be loaded with RTLD_GLOBAL (see `core.dlopen.FlagsPatch`)."""
        fitting = [
            (one, entry) for one, entry, _ in self._with_moment("opening") if _covers(one, module)
        ]
        subject = f"extension modules of {module.partition('.')[0]}"
        return self._scope(fitting, module, subject, is_file=False)

    def _scope(
        self, fitting: list[tuple[RuleEntry, str]], source: str, subject: str, *, is_file: bool
    ) -> tuple[bool, Callable[[], None]] | None:
        if not fitting:
            return None
        from cudaguard.core.request import Opening

        opening = Opening(source, subject, is_file=is_file)
        for one, entry in fitting:
            for request in self._requests(entry, [one], opening.source):
                scope: Scope | None = self._table.resolve(entry)(request, opening)
                if scope is not None:
                    return scope.stays_local, self._opened(request, scope)
        return None

    def _opened(self, request: Request, scope: Scope) -> Callable[[], None]:
        def opened() -> None:
            self._tell(request, scope.opened())

        return opened

    def _with_moment(self, moment: str) -> tuple[tuple[RuleEntry, str, str], ...]:
        """Return rule, entry and the verb's value of all actions that have a part at a moment."""
        found = self._native.get(moment)
        if found is None:
            verbs = self._table.index.VERBS
            found = self._native[moment] = tuple(
                (one, verbs[verb][moment], str(value))
                for one in self._registry.entries
                for verb, value in one.does
                if moment in verbs[verb]
            )
        return found

    # --- for modules that are there already ------------------------------------------

    def after_all(self) -> None:
        """Have done for modules that are there what is done after an import: not too late."""
        for name in list(self._registry.by_module):
            if is_imported(name) and not is_under_way(name):
                for entry, entries in self._of_module("after", name):
                    for request in self._requests(entry, entries, name):
                        self._tell(request, self._table.resolve(entry)(request))

    def late(self, name: str, one: RuleEntry, *, is_late: bool, at_start: bool) -> tuple[bool, int]:
        """Have done what is left to do for a module that is there.

        Args:
            name: The module.
            one: A rule that watches it.
            is_late: Has it come before the guard, or past it?
            at_start: Is this the start of the interpreter, before the program?

        Returns:
            Whether it is too late for some of it, and how much was done.
        """
        from cudaguard.core.request import MISSED

        is_missed, done = False, 0
        for entry in self._table.moments("late", (verb for verb, _ in one.does)):
            for request in self._requests(entry, [one], name, at_start=at_start):
                key = (name, one.id, request.permit.acts)
                if (is_late or request.permit.acts) and key not in self._checked:
                    self._checked.add(key)
                    outcomes = list(self._table.resolve(entry)(request) or ())
                    is_missed = is_missed or MISSED in outcomes
                    done += self._tell(request, outcomes)
        return is_missed, done

    def late_verb(self, one: RuleEntry) -> str:
        """Return the first verb of a rule that has a part at this moment, empty if none has."""
        return next((verb for verb, _ in one.does if "late" in self._table.index.VERBS[verb]), "")

    def do_now(
        self, repair: Callable[[Request], Outcomes], rule: Rule, verb: str, name: str
    ) -> None:
        """Have a repair done that a detector of the same feature has found to be needed."""
        request = self.request(rule, (verb,), name)
        self._tell(request, repair(request))

    def again(self) -> None:
        """Have late repairs done again: one may have brought something to light for another."""
        for one in self._registry.entries:
            for name in [name for name in one.watch if is_imported(name)][:1]:
                for entry in self._table.moments("late", (verb for verb, _ in one.does)):
                    for request in self._requests(entry, [one], name):
                        self._tell(request, self._table.resolve(entry)(request))


def _covers(one: RuleEntry, module: str) -> bool:
    """Return True if the rule watches the module or a package around it."""
    return any(module == name or module.startswith(f"{name}.") for name in one.watch)
