"""Repairs: which of them have a part at a moment, and what becomes of what they report.

A feature does something at a moment, of those in CONTRIBUTING.md, for its verbs. Whether it may is
tested here, once: its `Request` has a `Permit`, and the outcomes that it yields are noted, told or
raised here.
"""

from __future__ import annotations

import sys
from functools import partial

from cudaguard.core.registry import Registry
from cudaguard.core.reports import LATER
from cudaguard.core.rule import permit_for
from cudaguard.errors import ImportOrderError
from cudaguard.files import fixed_part, matches, os
from cudaguard.hooks.caller import UserLine, caller_frame, describe, frame_outside_of, module_of
from cudaguard.hooks.dlopen import NOT_FOUND, RTLD_GLOBAL
from cudaguard.hooks.loader import is_imported, is_under_way
from cudaguard.model import KW_ONLY, TYPE_CHECKING, Record, lazy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from importlib.machinery import ModuleSpec
    from types import FrameType
    from typing import Any, Union

    from cudaguard.core.findings import Finding
    from cudaguard.core.registry import RuleEntry
    from cudaguard.core.replace import Replacements
    from cudaguard.core.reports import Reporter
    from cudaguard.core.rule import Permit, Rule
    from cudaguard.core.table import FeatureTable

    Outcome = Union["Done", "WouldDo", "Refused"]
    Outcomes = Iterable[Outcome]

# What the loader says of a library that is older than the one that others were built with.
_UNDEFINED, _OUTDATED = ": undefined symbol: ", "' not found (required by "
MISSED = object()  # an outcome of the moment `late`: the module came too early for this


class Done(Record):
    """A repair has worked."""

    subject: str
    how: str  # in words that follow the subject
    _: KW_ONLY
    verb: str = ""  # empty for the first of the repair's
    stays: bool = True  # after `uninstall`


class WouldDo(Record):
    """A repair that is needed was not permitted; what is told instead."""

    finding: Finding
    about: str = ""  # see `cudaguard.core.reports.Reporter.is_told_about`


class Refused:
    """A repair was permitted, and could not be done."""

    def __init__(
        self,
        finding: Finding,
        # what `strict` raises; None for an `ImportOrderError` that says the same
        error: Exception | None = None,
        cause: BaseException | None = None,  # what that is raised from
    ) -> None:
        self.finding, self.error, self.cause = finding, error, cause


class Request:
    """Request of a rule to a repair at one moment."""

    def __init__(
        self,
        repairs: Repairs,  # who makes it
        entry: RuleEntry,  # the rule; its conditions hold here
        verbs: tuple[str, ...],  # those of its verbs that the repair does
        name: str,  # the module or extension concerned
        path: str | None = None,  # its file, if it has one
        *,
        can_raise: bool = False,  # may `strict` raise here?
    ) -> None:
        self.reporter: Reporter = repairs.reporter
        self._replacements: Callable[[], Replacements] = repairs.replacements
        self.scan_missed_loads: Callable[[], None] = repairs.scan_missed_loads
        self.entry, self.verbs = entry, verbs
        self.name, self.path, self.can_raise = name, path, can_raise
        self.permit: Permit = permit_for(self.reporter.mode, entry.grade)

    @property
    def rule(self) -> Rule:
        """The rule; its module is imported for it."""
        return self.entry.rule

    @property
    def values(self) -> tuple[Any, ...]:
        """The values of the verbs in the rule's actions, in their order."""
        return tuple(value for verb, value in self.entry.does if verb in self.verbs)

    @property
    def replacements(self) -> Replacements:
        """Registry of replaced attributes; it keeps this request to name the line later."""
        self.frame  # noqa: B018  # looked for now
        return self._replacements()

    @property
    def where(self) -> str:
        """``file:line`` of the code behind this."""
        return describe(caller_frame())

    @property
    def by(self) -> str:
        """The module of the code behind this."""
        return module_of(caller_frame())

    @lazy
    def frame(self) -> UserLine | None:
        """The user's line, where a package did it: without its variables."""
        frame = frame_outside_of(self.entry.watch[0].partition(".")[0])
        return None if frame is None else UserLine(frame)

    def tell(self, outcome: Outcome, frame: FrameType | UserLine | None = None) -> bool:
        """Take note of an outcome, tell it, and raise in `strict` what was refused.

        Returns whether it is news; always so for what was done.
        """
        reporter, frame, verb = self.reporter, frame or self.frame, self.verbs[0]
        if isinstance(outcome, Done):
            reporter.repaired(
                self.entry.id, outcome.verb or verb, outcome.subject, outcome.how,
                stays=outcome.stays, frame=frame,
            )  # fmt: skip
            return True
        if isinstance(outcome, WouldDo):
            return reporter.found(outcome.finding, frame, about=outcome.about, verb=verb)
        if not self.can_raise:
            return reporter.found(outcome.finding, frame, stop=LATER, verb=verb)
        what = outcome.finding.as_error()
        stop = outcome.error or ImportOrderError(what, name=self.name, path=self.path)
        if outcome.cause is not None:
            stop.__cause__ = outcome.cause
        outcome.error = None  # an error and frames that have it keep each other, and what they hold
        try:
            return reporter.found(outcome.finding, frame, stop=stop, verb=verb)
        finally:
            del stop


class Repairs:
    """Calls the repairs of all features; one per process.

    The table is given: where a program has forgotten what it had imported, this module would import
    another.
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
        asked = self._of_module("before", name)
        found = [partial(self._import, *do, can_raise=True) for do in asked]
        return [*found, *(() if RTLD_GLOBAL else (self._tell_unsupported,))]

    def after(self, name: str) -> list[Callable[[ModuleSpec, object], None]]:
        """Return what is to be called when a module was imported."""
        return [partial(self._import, *do) for do in self._of_module("after", name)]

    def _of_module(self, moment: str, name: str) -> Iterator[tuple[str, list[RuleEntry]]]:
        own = [e for e in self.registry.by_module.get(name, ()) if self._is_supported(e)]
        verbs = {verb for entry in own for verb, _ in entry.does}
        for entry, wanted in self.table.moments(moment, verbs).items() if own else ():
            yield entry, [e for e in own if any(verb in wanted for verb, _ in e.does)]

    def _is_supported(self, entry: RuleEntry) -> bool:
        return bool(entry.does and (RTLD_GLOBAL or entry.is_for_windows))

    def _tell_unsupported(self, spec: ModuleSpec) -> None:
        """Say which repairs of a module this platform has no means for."""
        from cudaguard.core import findings
        from cudaguard.core.rule_check import toml_text

        for entry in self.registry.by_module.get(spec.name, ()):
            is_asked = not self._is_supported(entry) and _applies(entry)
            for action in entry.rule.actions if is_asked else ():
                self.reporter.found(findings.unsupported(entry.rule, toml_text(action)))

    def _import(
        self, entry: str, entries: Iterable[RuleEntry], spec: ModuleSpec, *_: object, **how: bool
    ) -> None:
        self.do(entry, entries, spec.name, spec.origin, **how)

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
        done = 0
        for request in self.requests(entry, entries, name, path, can_raise=can_raise):
            done += self.tell(request, self.table.resolve(entry)(request, *more))
        return done

    def requests(
        self, entry: str, entries: Iterable[RuleEntry], *what: Any, **how: Any
    ) -> Iterator[Request]:
        """Yield what the rules ask for whose conditions hold; nothing once the guard is down."""
        moments = self.table.index.VERBS
        for row in entries:
            if self.reporter.mode != "off" and _applies(row):
                asked = row.asked
                if asked[0] != entry:
                    verbs = (verb for verb, _ in row.does if entry in moments[verb].values())
                    asked = row.asked = entry, tuple(verbs)
                yield Request(self, row, asked[1], *what, **how)

    def tell(self, request: Request, outcomes: Outcomes | None) -> int:
        """Tell the outcomes; return how much was done."""
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

    def late(self, name: str, row: RuleEntry, *, is_late: bool) -> tuple[bool, int]:
        """Do what is left for a module that is there; return if too late, and how much was done."""
        is_missed, done = False, 0
        for entry in self.table.moments("late", (verb for verb, _ in row.does)):
            for request in self.requests(entry, [row], name):
                key = (name, row.id, request.permit.acts)
                if (is_late or request.permit.acts) and key not in self._checked:
                    self._checked.add(key)
                    outcomes = list(self.table.resolve(entry)(request) or ())
                    is_missed = is_missed or MISSED in outcomes
                    done += self.tell(request, outcomes)
        return is_missed, done

    def again(self) -> None:
        """Have late repairs done again: one may have brought something to light for another."""
        for row in self.registry.entries:
            for name in [name for name in row.watch if is_imported(name)][:1]:
                for entry in self.table.moments("late", (verb for verb, _ in row.does)):
                    self.do(entry, [row], name)


class NativeRepairs:
    """Repairs at native loads: a library is opened, or an extension is mapped.

    Made again when other rules come into force.
    """

    def __init__(self, repairs: Repairs) -> None:
        self._repairs = repairs
        self._of_no_concern: set[tuple[str, ...]] = set()  # what extensions need
        self._looked_for: set[str] = set()  # libraries and packages: see `make_room`
        self._native: dict[str, tuple[tuple[RuleEntry, str, str], ...]] = {}
        self._starts: dict[str, tuple[str, ...]] = {}  # moment: fixed parts of the verbs' values
        self._first: list[tuple[RuleEntry, str, str]] | None = None  # what has not been needed yet

    def mapping(self, spec: ModuleSpec, needed: tuple[str, ...], masked_for: str) -> None:
        """Have done what is to be done before an extension is mapped."""
        if needed not in self._of_no_concern:
            self.provide(spec, needed)
            self.choose(spec.origin or "", spec.name, needed)
            if self._first is None:
                self._first = list(self._with_moment("first"))
            due = [item for item in self._first if item[2] in needed]
            if due:  # on Windows those that come later may need a newer one
                done = [item for item in due if not item[0].is_for_windows]
                self._first = [item for item in self._first if item not in done]
            elif not any(self._beginning_as(moment, needed) for moment in ("needing", "choosing")):
                self._of_no_concern.add(needed)
            for row, entry, name in due:
                self._map(entry, row, spec, name)
        for row, entry, _ in self._with_moment("masking") if masked_for else ():
            if _covers(row, masked_for):
                self._map(entry, row, spec)

    def make_room(self, file: str, name: str, takes: set[str]) -> None:
        """Have loaded first what would find no room for its thread-local variables later.

        `takes`: the package of the file and the libraries it brings, as far as they may take some.
        """
        if not takes <= self._looked_for:
            self._looked_for |= takes
            for row, entry, _ in self._with_moment("crowding"):
                self._repairs.do(entry, [row], name, file, can_raise=True)

    def choose(self, file: str, name: str, needed: Iterable[str]) -> None:
        """Have the right one opened of several copies of what is about to be mapped.

        `file` is what needs the libraries, empty for a load by that very name; `name` what to call
        it.
        """
        for library in self._beginning_as("choosing", needed):
            for row, entry, value in self._with_moment("choosing"):
                if matches(library, (value,)):
                    self._repairs.do(entry, [row], name, file, library, can_raise=True)

    def provide(self, spec: ModuleSpec, needed: tuple[str, ...]) -> bool:
        """Have brought what an extension needs; True if something was done."""
        done = 0
        needed = self._beginning_as("needing", needed)
        for row, entry, value in self._with_moment("needing") if needed else ():
            if row.watch[0] not in sys.modules:
                fitting = tuple(name for name in needed if matches(name, (value,)))
                if fitting:
                    done += self._map(entry, row, spec, fitting)
        return done > 0

    def provide_after(self, spec: ModuleSpec, error: ImportError) -> bool:
        """Have brought what an extension was refused for; True if something was done.

        What the extension needs itself was seen to before it was mapped. The loader looks for all
        libraries before it runs anything of them: after such a refusal a second try is a first one.
        An error that the extension's own code lets pass says nothing of this file, or of none.
        """
        refused, file = error.path, spec.origin
        if file is None or not isinstance(refused, str):
            return False
        if refused != file and os.path.abspath(refused) != os.path.abspath(file):
            return False
        if NOT_FOUND in str(error):
            missing = str(error).partition(NOT_FOUND)[0]
            from cudaguard.elf.reader import read_elf

            if missing not in read_elf(file).needed and self.provide(spec, (missing,)):
                return True
        return self.fetch(file, spec.name, error)

    def fetch(self, file: str, name: str, error: Exception) -> bool:
        """Have opened what a file, no bare name, was refused for; True if something was done."""
        said = str(error)
        missing, found, _ = said.partition(NOT_FOUND)
        if os.sep not in file or (found and os.sep in missing):
            return False
        if not (found or _UNDEFINED in said or _OUTDATED in said):
            return False
        missing = missing if found else ""
        for row, entry, value in self._with_moment("lacking"):
            is_meant = not found or matches(missing, (value,))
            if is_meant and self._repairs.do(entry, [row], name, file, missing, can_raise=True):
                return True
        return False

    def _map(self, entry: str, row: RuleEntry, spec: ModuleSpec, *more: object) -> int:
        return self._repairs.do(entry, [row], spec.name, spec.origin, *more, can_raise=True)

    def scope_of_library(self, library: str) -> tuple[bool, Callable[[], object]] | None:
        """Decide about a library to be loaded with RTLD_GLOBAL (see `LibraryLoads`)."""
        name = os.path.basename(library)
        fitting = [item for item in self._with_moment("opening") if matches(name, (item[2],))]
        return self._scope(fitting, library, name, is_file=True)

    def scope_of_extensions(self, module: str) -> tuple[bool, Callable[[], object]] | None:
        """Decide about extensions to be loaded with RTLD_GLOBAL (see `LoaderFlags`)."""
        fitting = [item for item in self._with_moment("opening") if _covers(item[0], module)]
        subject = f"extension modules of {module.partition('.')[0]}"
        return self._scope(fitting, module, subject, is_file=False)

    def _scope(
        self, fitting: list[tuple[RuleEntry, str, str]], source: str, subject: str, *, is_file: bool
    ) -> tuple[bool, Callable[[], object]] | None:
        repairs = self._repairs
        for row, entry, _ in fitting:
            for request in repairs.requests(entry, [row], source):
                scope = repairs.table.resolve(entry)(request, subject, is_file)
                if scope is not None:
                    return scope[0], partial(repairs.tell, request, scope[1])
        return None

    def _beginning_as(self, moment: str, names: Iterable[str]) -> tuple[str, ...]:
        """Return those that may be meant at a moment: nearly none, and matching is not light."""
        if (starts := self._starts.get(moment)) is None:
            values = (value for _, _, value in self._with_moment(moment))
            starts = self._starts[moment] = tuple(map(fixed_part, values))
        return tuple(name for name in names if name.startswith(starts))

    def _with_moment(self, moment: str) -> tuple[tuple[RuleEntry, str, str], ...]:
        """Return rule, entry and the verb's value of all actions that have a part at a moment."""
        if (found := self._native.get(moment)) is None:
            verbs = self._repairs.table.index.VERBS
            found = self._native[moment] = tuple(
                (entry, verbs[verb][moment], str(value))
                for entry in self._repairs.registry.entries
                for verb, value in entry.does
                if moment in verbs[verb]
            )
        return found


def _applies(row: RuleEntry) -> bool:
    """Return True if all conditions of a rule hold here; the rule is made only if need be."""
    if (is_so := row.applies()) is not None:
        return is_so
    from cudaguard.core.decide import applies
    from cudaguard.system.facts import Facts

    return applies(row.rule, Facts())


def _covers(row: RuleEntry, module: str) -> bool:
    """Return True if the rule watches the module or a package around it."""
    return any(module == name or module.startswith(f"{name}.") for name in row.watch)
