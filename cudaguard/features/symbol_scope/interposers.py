"""Libraries that came into the global symbol scope, and later ones that use their symbols.

A library that only is there does no harm. Before another one is mapped it is known which of that
one's own symbols the interposers would answer. It is bound to its own then, where that changes
nothing else; where not, both are named, and the line that brought the interposer.
"""

from __future__ import annotations

from contextlib import ExitStack

from cudaguard.core.decide import applying
from cudaguard.core.reports import LATER
from cudaguard.elf.interposition import Binding, Known, binding_of, load_of, members, open_deep
from cudaguard.elf.reader import read_elf
from cudaguard.errors import ImportOrderError
from cudaguard.features.symbol_scope.findings import (
    BY_FIX,
    INTERPOSED,
    Interposer,
    bound_to_own,
    interposed,
)
from cudaguard.features.symbol_scope.repair import names_library, packages_of, runtime_among
from cudaguard.files import matches, os, own_errors
from cudaguard.hooks.caller import caller_frame, describe, frame_outside, is_importing, module_of
from cudaguard.model import TYPE_CHECKING
from cudaguard.system.facts import Facts, Packages
from cudaguard.system.runtimes import FAMILIES, is_meant_but_fftw

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudaguard.core.detection import NativeLoad
    from cudaguard.core.dispatch import Dispatch
    from cudaguard.core.reports import Later
    from cudaguard.core.rule import Rule
    from cudaguard.elf.interposition import Interposed
    from cudaguard.elf.process import Library, Scope


# --- When they come -----------------------------------------------------------------------------


def new_interposers(
    core: Dispatch, libraries: Iterable[Library], load: NativeLoad | None, since: str
) -> dict[str, Interposer]:
    """Return what is known of what has just become global, by file; `since`: why `load` is None."""
    packages, facts = Packages(), Facts()
    files = [library.file for library in libraries]
    has_runtime = bool(runtime_among(files))
    is_told = load is not None and load.is_global  # by a rule, where the scope was asked for
    frame = caller_frame() if load is not None else None
    line = module_of(frame), describe(frame), describe(frame_outside(frame))
    found = {}
    for file in files:
        package = packages.of(file)
        rules = _rules_about(core, file, package, load)
        here = applying(rules, facts)
        # Each is asked: what they do must not depend on what another one does. A rule that should
        # have kept the names out and did not must not silence what is seen.
        known = [is_told and (has_runtime or not core.permit(rule).acts) for rule in here]
        is_let_be = bool(rules and not here)
        found[file] = Interposer(file, package, load, since, *line, any(known), is_let_be)
    return found


def _rules_about(core: Dispatch, file: str, package: str, load: NativeLoad | None) -> list[Rule]:
    """Return the rules that name the library, what was loaded with it, or its package."""
    names, libraries = {package.lower()}, [file]
    if load is not None:
        names.add(load.extension.partition(".")[0].lower())
        libraries.append(load.library)
    names.discard("")
    return [
        entry.rule
        for entry in core.registry.entries
        if any(verb == "load_local" for verb, _ in entry.does)
        if not names.isdisjoint(packages_of(entry.rule))
        or any(names_library(entry.rule, library) for library in libraries)
    ]


# --- When others come ---------------------------------------------------------------------------


class ScopeJudge:
    """Judges what is mapped while interposers are in the global scope."""

    def __init__(self, core: Dispatch) -> None:
        self._core = core
        self._known = Known({}, {})
        self._reported: set[tuple[object, ...]] = set()  # culprits that were warned of
        self.judged: set[str] = set()  # files that were judged before they were mapped

    def before(self, path: str, name: str, scope: Scope, known: dict[str, Interposer]) -> None:
        """Judge a library that is about to be mapped; bind it to its own symbols if need be.

        `name` is empty for a load by ctypes; `known` are the interposers in the scope.

        Raises:
            ImportOrderError: in `strict`, from an import.
        """
        scope = _to(os.path.realpath(path), scope, known)
        if not scope.interposers or INTERPOSED.id in self._core.reporter.silenced:
            return
        with ExitStack() as opened:
            try:
                from cudaguard.elf.resident import Resident

                resident = opened.enter_context(Resident())
                new, handles = load_of(os.path.abspath(path), resident, opened)
                binding = binding_of(new, handles, scope, resident, self._known)
            except own_errors(OSError, AttributeError, ImportError):  # the loader has its own words
                return
        self.judged.update(member.file for member in new)
        name = name or os.path.basename(path)
        if not any(_matters(found, known[found.by]) for found in binding.interposed):
            self._tell(binding, name, path, known)
            return
        if runtime_among(dict.fromkeys(found.by for found in binding.interposed)):
            # Its unique objects are the process's, whatever scope is asked first.
            binding = binding._replace(uncertain="it contains its own C++ runtime")
        if self._core.permit().acts and not binding.uncertain and open_deep(path):
            how, frame = bound_to_own(binding.interposed), caller_frame()
            self._core.reporter.repaired(INTERPOSED.id, "bind_own", name, how, frame=frame)
        else:
            hint = f"mode {self._core.reporter.mode!r} changes nothing; {BY_FIX}"
            if not (self._core.permit().acts or binding.uncertain):
                binding = binding._replace(uncertain=hint)
            self._tell(binding, name, path, known)

    def after(self, libraries: list[Library], scope: Scope, known: dict[str, Interposer]) -> None:
        """Tell of libraries that were mapped unseen, and are bound to interposers.

        Raises:
            ImportOrderError: in `strict`, from an import.
        """
        if INTERPOSED.id in self._core.reporter.silenced:
            return
        found: dict[str, Binding] = {}
        with ExitStack() as opened:
            try:
                from cudaguard.elf.resident import Resident

                resident = opened.enter_context(Resident())
            except own_errors(AttributeError, ImportError):  # a Python without ctypes
                return
            for library in libraries:
                file = library.file
                to = _to(file, scope, known)
                try:
                    if handle := resident.handle(library.path) if to.interposers else 0:
                        new = members(resident.memory, [library])
                        found[file] = binding_of(new, [handle], to, resident, self._known)
                except own_errors(OSError):  # unloaded meanwhile
                    continue
        for file, binding in found.items():
            package, name = Packages().of(file), os.path.basename(file)
            bound = name if name.startswith(package) else f"{name} ({package})"
            self._tell(binding, bound, file, known)

    def _tell(self, binding: Binding, bound: str, path: str, known: dict[str, Interposer]) -> None:
        journal = self._core.journal
        for (*culprit, is_judged), taken in _by_culprit(binding.interposed, known).items():
            if is_judged and not journal.record:
                continue
            runtime = runtime_among(dict.fromkeys(name.by for name in taken))
            finding = interposed(bound, taken, known[taken[0].by], runtime, binding.uncertain)
            if is_judged:  # for the report of a crash, and for a trace
                details = finding.replace(severity="info")
                where = describe(caller_frame())
                journal.note("finding", f"{finding.id} {finding.what}", where, details)
                continue
            stop: ImportOrderError | Later = LATER
            if is_importing():
                stop = ImportOrderError(finding.as_error(), name=bound, path=path)
            is_first = tuple(culprit) not in self._reported
            self._reported.add(tuple(culprit))
            self._core.reporter.found(finding, caller_frame(), stop=stop, only_logged=not is_first)


def _to(file: str, scope: Scope, known: dict[str, Interposer]) -> Scope:
    """Return the scope without those interposers that are of the same package as a file."""
    # Parts of a package find one another by the global scope.
    packages = {folder.removesuffix(".libs") for folder in file.split(os.sep)[:-1]} - {""}
    interposers = [lib for lib in scope.interposers if known[lib.file].package not in packages]
    mostly_meant = {lib for lib in interposers if is_meant_but_fftw(os.path.basename(lib.path))}
    if mostly_meant and not any("fftw" in name for name in read_elf(file).needed):
        interposers = [lib for lib in interposers if lib not in mostly_meant]
    return scope._replace(interposers=tuple(interposers))


def _by_culprit(
    names: Iterable[Interposed], known: dict[str, Interposer]
) -> dict[tuple[str, str, bool], list[Interposed]]:
    """Return the names by the line and package that brought them, and if a rule judges them."""
    found: dict[tuple[str, str, bool], list[Interposed]] = {}
    for name in sorted(names, key=lambda name: list(known).index(name.by)):
        interposer = known[name.by]
        is_judged = interposer.is_known or not _matters(name, interposer)
        found.setdefault((interposer.where, interposer.package, is_judged), []).append(name)
    return found


def _matters(found: Interposed, interposer: Interposer) -> bool:
    """Return True unless a name is meant for all, or a rule knows that it does no harm here.

    No rule knows that of what registers itself once per process, where two copies abort, nor of
    what is built in other ways: BoringSSL, SQLite without FTS5, a libcurl of fewer protocols.
    """
    if is_meant_but_fftw(os.path.basename(found.by)) and not found.name.startswith("fftw"):
        return False
    return not interposer.is_let_be or any(
        matches(found.name, FAMILIES[key].names)
        for key in ("llvm", "protobuf", "openssl", "sqlite", "curl")
    )
