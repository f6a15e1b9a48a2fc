"""Repairs: which of them have a part at a moment, and what becomes of what they report.

A feature does something at a moment (`MOMENTS`) for its verbs. Whether it may is tested here, once:
its `Request` has a `Permit`, and the outcomes that it yields are noted, told or raised here.
"""

from __future__ import annotations

from cudaguard.core.registry import Registry
from cudaguard.hooks.dlopen import RTLD_GLOBAL
from cudaguard.hooks.loader import is_imported, is_under_way

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from importlib.machinery import ModuleSpec
    from typing import Any

    from cudaguard.core.registry import RuleEntry
    from cudaguard.core.replace import Replacements
    from cudaguard.core.reports import Reporter
    from cudaguard.core.request import Outcomes, Request
    from cudaguard.core.table import FeatureTable

# When a repair is called. What it is given is a `Request`, and at some moments more.
MOMENTS = {
    "before": "a watched module is about to be imported",
    "after": "it was imported, or was there when the rule came into force: replaces attributes",
    "late": "it was there when the rule came into force; yields MISSED where that is too late",
    "needing": "an extension is about to be mapped, or was refused, that needs a library which the "
    "pattern fits, while the watched module is not imported; is given the libraries",
    "choosing": "a library or extension is about to be mapped that needs, or is, a library which "
    "the pattern fits; is given its name",
    "first": "the first extension is about to be mapped that needs the library of that name",
    "lacking": "a library or extension with a path was refused for want of another, which the "
    "pattern fits; is given its name, empty where one that is there is too old",
    "masking": "an extension is about to be mapped without the RTLD_GLOBAL that was asked for",
    "opening": "a library that the pattern fits, or an extension of the watched package, is to be "
    "opened with RTLD_GLOBAL; is given what to call it, and whether it is a file; returns whether "
    "it stays local, and what is told once it is opened, or None",
}


class Repairs:
    """Calls the repairs of all features; one per process.

    What a request needs is imported with the first one: most processes have none. The table is
    given: where a program has forgotten what it had imported, this module would import another.
    """

    def __init__(
        self,
        reporter: Reporter,
        replacements: Callable[[], Replacements],
        scan_missed_loads: Callable[[], None],
        table: FeatureTable,
    ) -> None:
        self.reporter, self.replacements = reporter, replacements
        self.scan_missed_loads = scan_missed_loads
        self.table = table
        self.registry = Registry((), {})  # what is in force
        self._checked: set[tuple[str, str, bool]] = set()  # module, rule, could it be repaired?

    # --- before and after the import of a module ----------------------------------------------

    def before(self, name: str) -> list[Callable[[ModuleSpec], None]]:
        """Return what is to be called before a module is imported."""
        found: list[Callable[[ModuleSpec], None]] = [
            lambda spec, do=do: self._import(*do, spec, can_raise=True)  # type: ignore[misc]
            for do in self._of_module("before", name)
        ]
        return found if RTLD_GLOBAL else [*found, self._tell_unsupported]

    def after(self, name: str) -> list[Callable[[ModuleSpec, object], None]]:
        """Return what is to be called when a module was imported."""
        return [
            lambda spec, _, do=do: self._import(*do, spec)  # type: ignore[misc]
            for do in self._of_module("after", name)
        ]

    def _of_module(self, moment: str, name: str) -> Iterator[tuple[str, list[RuleEntry]]]:
        own = [e for e in self.registry.by_module.get(name, ()) if self._is_supported(e)]
        verbs = {verb for entry in own for verb, _ in entry.does}
        for entry, its in self.table.moments(moment, verbs).items() if own else ():
            yield entry, [e for e in own if any(verb in its for verb, _ in e.does)]

    def _is_supported(self, entry: RuleEntry) -> bool:
        return bool(entry.does and (RTLD_GLOBAL or entry.is_for_windows))

    def _tell_unsupported(self, spec: ModuleSpec) -> None:
        """Say which repairs of a module this platform has no means for."""
        from cudaguard.core import findings
        from cudaguard.core.rule_check import toml_text

        for one in self.registry.by_module.get(spec.name, ()):
            is_asked = not self._is_supported(one) and _applies(one)
            for action in one.rule.actions if is_asked else ():
                self.reporter.found(findings.unsupported(one.rule, toml_text(action)))

    def _import(
        self, entry: str, entries: Iterable[RuleEntry], spec: ModuleSpec, *, can_raise: bool = False
    ) -> None:
        self.do(entry, entries, spec.name, spec.origin, can_raise=can_raise)

    def do(
        self,
        entry: str,
        entries: Iterable[RuleEntry],
        name: str,
        path: str | None = None,
        *more: object,
        can_raise: bool = False,
    ) -> int:
        """Have an entry do what rules ask for; return how much was done.

        It is given a `Request` for each rule, and `more`.
        """
        return sum(
            self.tell(request, self.table.resolve(entry)(request, *more))
            for request in self.requests(entry, entries, name, path, can_raise=can_raise)
        )

    def requests(
        self,
        entry: str,
        entries: Iterable[RuleEntry],
        name: str,
        path: str | None = None,
        **how: bool,
    ) -> Iterator[Request]:
        """Yield what the rules ask for whose conditions hold; nothing once the guard is down."""
        its = self.table.index.VERBS
        for one in entries:
            if self.reporter.mode != "off" and _applies(one):
                verbs = tuple(verb for verb, _ in one.does if entry in its[verb].values())
                yield self.request(one, verbs, name, path, **how)

    def request(self, *asked: Any, **more: Any) -> Request:
        """Return a request, with the arguments of `Request` from the entry on."""
        from cudaguard.core.request import Request

        return Request(self, *asked, **more)

    def tell(self, request: Request, outcomes: Outcomes | None) -> int:
        """Tell the outcomes; return how much was done."""
        from cudaguard.core.request import MISSED, Done

        done = 0
        for outcome in outcomes or ():
            if outcome is not MISSED:
                request.tell(outcome)
                done += isinstance(outcome, Done)
        return done

    # --- for modules that are there already ------------------------------------------

    def after_all(self) -> None:
        """Have done for modules that are there what is done after an import: not too late."""
        for name in list(self.registry.by_module):
            if is_imported(name) and not is_under_way(name):
                for entry, entries in self._of_module("after", name):
                    self.do(entry, entries, name)

    def late(self, name: str, one: RuleEntry, *, is_late: bool, at_start: bool) -> tuple[bool, int]:
        """Do what is left for a module that is there; return if too late, and how much was done."""
        from cudaguard.core.request import MISSED

        is_missed, done = False, 0
        for entry in self.table.moments("late", (verb for verb, _ in one.does)):
            for request in self.requests(entry, [one], name, at_start=at_start):
                key = (name, one.id, request.permit.acts)
                if (is_late or request.permit.acts) and key not in self._checked:
                    self._checked.add(key)
                    outcomes = list(self.table.resolve(entry)(request) or ())
                    is_missed = is_missed or MISSED in outcomes
                    done += self.tell(request, outcomes)
        return is_missed, done

    def again(self) -> None:
        """Have late repairs done again: one may have brought something to light for another."""
        for one in self.registry.entries:
            for name in [name for name in one.watch if is_imported(name)][:1]:
                for entry in self.table.moments("late", (verb for verb, _ in one.does)):
                    self.do(entry, [one], name)


def _applies(one: RuleEntry) -> bool:
    """Return True if all conditions of a rule hold here; the rule is made only if need be."""
    is_so = one.applies()
    if is_so is not None:
        return is_so
    from cudaguard.core.decide import applies
    from cudaguard.system.facts import Facts

    return applies(one.rule, Facts())
