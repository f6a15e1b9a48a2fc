"""Layers of callers that asked for the guard, and the state of the process that follows from them.

What is in force is computed from the open layers anew at every change, so that blocks may be
left in any order and the last one to be left restores what was there before.
"""

from __future__ import annotations

import sys
from _thread import RLock

from cudaguard.core.dispatch import Dispatch
from cudaguard.core.registry import InForce, Layer, Registry, built_in, entry_of
from cudaguard.core.reports import LATER, passes_through
from cudaguard.core.rule import REPAIRING, Permit
from cudaguard.core.table import table
from cudaguard.files import os, own_errors, program_errors
from cudaguard.hooks.barrier import ON_PURPOSE, ImportCallbacks
from cudaguard.hooks.loader import is_imported
from cudaguard.model import MODE_VARIABLE, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from cudaguard.core.findings import Status
    from cudaguard.core.registry import Sourced
    from cudaguard.core.rule import Rule
    from cudaguard.core.rule_check import Entry


class Activation:
    """The state that `install` and its kin change; one per process.

    The lock is never held while code of the program or of a plug-in runs.
    """

    def __init__(self) -> None:
        self.core = Dispatch()
        self._base: Layer | None = None  # by install() or by the environment
        self._blocks: tuple[Layer, ...] = ()  # open guard() blocks
        self._added: tuple[Sourced, ...] = ()  # by add_rule() and by plug-ins that were hit
        self._plugins: dict[str, tuple[Entry, ...]] | None = None  # None: not looked for yet
        self._entries: frozenset[Entry] = frozenset()  # all that were ever found
        self._lazy = LazyFilter()
        self._context = ""  # the setting by which a context was created, or is to be
        self._exported = ""  # the mode that was put into the environment, for children
        self._exported_over: str | None = None  # what stood there before
        self._lock = RLock()
        self._pid = os.getpid()
        self.woken_by = ""  # why the guard was loaded, in words

    @property
    def lock(self) -> RLock:
        """The lock of this process."""
        # A fork copies it as another thread may have held it: a child begins anew.
        if self._pid != os.getpid():
            self._pid, self._lock = os.getpid(), RLock()
        return self._lock

    def take_over(self, reason: str) -> None:
        """Come into force where the kernel was asleep; does nothing elsewhere."""
        self.woken_by = self.woken_by or reason
        core, kernel = self.core, self.core.kernel
        if kernel.asked is None:
            return
        with self.lock:
            if kernel.asked is None:  # another thread has been here
                return
            mode, is_alone = kernel.asked
            core.reporter.home = kernel.pid
            self._base = Layer(mode, alone=is_alone)
            Permit.asked_for = mode or ""
            # The environment as it was then: nothing else of it was set.
            rules = (*built_in(), *self._added)
            mode = mode or kernel.mode or "fix"
            wanted = InForce(mode, {}, rules, "", True, "none", (), ())
            self._look_for_plugins(wanted, at_boot=False)
            self._install_hooks(wanted)
        self._follow(wanted, "off")
        if kernel.of_loads().has_news():
            core.start_detection()
        self._load_late_plugins()

    def install(self, layer: Layer) -> None:
        """Put a layer on top of what was installed before."""
        with self.lock:
            self._base = layer.over(self._base or Layer())
        self.apply()

    def boot(self) -> None:
        """Activate by the environment alone; does nothing where somebody has asked before."""
        if self._base is None:
            self._base = Layer(alone=True)
            self.apply(at_boot=True)

    def open(self, layer: Layer) -> None:
        """Add the layer of a block; once per entry of a block that is entered several times."""
        with self.lock:
            self._blocks = (*self._blocks, layer)
        self.apply()

    def close(self, layer: Layer) -> None:
        """Take one entry of the layer away; does nothing where `clear` has taken it."""
        with self.lock:
            for index, block in enumerate(self._blocks):
                if block is layer:
                    self._blocks = self._blocks[:index] + self._blocks[index + 1 :]
                    break
        self.apply()

    def clear(self) -> None:
        """Take everything away that was asked for, and put the environment back."""
        with self.lock:
            self._base, self._blocks = None, ()
        self.apply()

    def add(self, *rules: Sourced) -> None:
        """Add rules for the rest of the process."""
        with self.lock:
            self._added = (*self._added, *rules)
        self.apply()

    def _export(self, mode: str) -> None:
        """Put a mode into the environment, for children; what stood there, where it is ``off``."""
        if mode != "off":
            if not self._exported:
                self._exported_over = os.environ.get(MODE_VARIABLE)
            self._exported = os.environ[MODE_VARIABLE] = mode
            return
        ours, self._exported = self._exported, ""
        if ours and os.environ.get(MODE_VARIABLE) == ours:  # else the program has set it since
            if self._exported_over is None:
                del os.environ[MODE_VARIABLE]
            else:
                os.environ[MODE_VARIABLE] = self._exported_over

    def active_rules(self) -> tuple[Rule, ...]:
        """Return the rules in force; without a guard, those that `install` would put in force."""
        if self.core.is_installed:
            return self.core.registry.rules
        would = self._combined((Layer(),))
        return Registry(would.rules, would.switches).rules

    def every_rule(self) -> dict[str, Rule]:
        """Return all rules, on or off, by their ids; those of plug-ins, which are imported, too."""
        self._look_for_plugins(self._combined((Layer(),)), at_boot=False)
        for name in list(self._plugins or ()):
            self._load_plugins(name)
        return {entry.id: entry.rule for entry, _ in self._combined((Layer(),)).rules}

    def status(self) -> Status:
        """Return what the guard is doing and what it has found so far. Looking touches nothing."""
        from cudaguard.core.findings import Status

        core, is_installed = self.core, self.core.is_installed
        if is_installed:
            from cudaguard.core.prerequisites import record_bypassed

            record_bypassed(core)
        return Status(
            core.reporter.mode,
            woken_by=self.woken_by if is_installed else "",
            watched=tuple(sorted(core.kernel.watched)) if is_installed else (),
            events=core.journal.events,
            findings=tuple(core.reporter.channel.findings),
            rules=core.registry.rules if is_installed else (),
            changes=(*self.in_place(), *core.reporter.changes),
        )

    def apply(self, *, at_boot: bool = False) -> None:
        """Bring the process in line with the open layers; `at_boot`: before the program begins.

        Raises:
            CudaGuardWarning: if the user's filters turn a category of ours into an error.
        """
        core = self.core
        try:
            with self.lock:
                before = core.reporter.mode
                layers = [layer for layer in (self._base, *self._blocks) if layer]
                wanted = self._combined(layers)
                Permit.asked_for = next((layer.mode for layer in layers[::-1] if layer.mode), "")
                if wanted.mode == "off":
                    self._uninstall_hooks()
                else:
                    self._look_for_plugins(wanted, at_boot=at_boot)
                    self._install_hooks(wanted)
                self._export(wanted.mode if any(layer.children for layer in layers) else "off")
            self._follow(wanted, before)
            if core.is_installed and core.context not in ("none", "auto"):
                self._create_context(core.context, at_boot=at_boot)
            if core.is_installed:
                self._report_late(at_start=at_boot)
        except ON_PURPOSE:
            raise
        except program_errors(Exception) as error:
            # The program has asked for a guard and not for its faults.
            core.broken("switching the guard", error)

    def _follow(self, wanted: InForce, before: str) -> None:
        """Write and tell of what is in force; here code of the program may run."""
        core = self.core
        if core.is_installed:
            core.journal.write_to(wanted.journal)
        if wanted.mode != before:
            kind = "install" if core.is_installed else "uninstall"
            details = {"woken_by": self.woken_by} if core.is_installed and self.woken_by else None
            core.journal.note(kind, wanted.mode, "", details)
        if wanted.problems and (self._base or self._blocks):
            self._report(wanted)

    # --- the hooks ------------------------------------------------------------------

    def _install_hooks(self, wanted: InForce) -> None:
        """Put rules in force and the hooks in place; each part is published by one assignment."""
        core, registry = self.core, Registry(wanted.rules, wanted.switches)
        core.reporter.mode, core.context = wanted.mode, wanted.context
        core.reporter.silenced = registry.silenced
        if wanted.mode != "strict":
            core.reporter.deferred = []
        core.put_in_force(registry)
        names = (*registry.by_module, *registry.opt_in_orders, *table.index.INITIALIZERS)
        self._watch(dict.fromkeys((*names, *(self._plugins or ()), *wanted.watch, "ctypes")))
        kernel = core.kernel
        if kernel.asked is None:
            # Or asked for again, and another one was put in front.
            self._finders().insert_first(kernel)
        kernel.core, kernel.asked = core, None
        kernel.patch()
        is_in_block = self._blocks and (self._base is None or self._base.mode == "off")
        has_filter = hasattr(sys, "set_lazy_imports_filter")
        if is_in_block and has_filter and wanted.mode in REPAIRING:
            watched = {name for entry in registry.entries for name in entry.watch}
            self._lazy.roots = frozenset(name.partition(".")[0] for name in watched)
            self._lazy.install()
        else:
            self._lazy.uninstall()
        if core.made("end") and core.end.is_wanted:
            core.end.install()

    def _watch(self, names: Mapping[str, object]) -> None:
        if self.core.is_traced or "*" in names:
            names = self._finders().EveryTopLevel(names)
        self.core.kernel.watched = names

    def _uninstall_hooks(self) -> None:
        """Put back everything that can be put back."""
        core = self.core
        core.reporter.mode = "off"
        core.reporter.deferred = []
        kernel = core.kernel
        self._finders().remove(kernel)
        kernel.core = kernel.asked = None
        kernel.watched = {}
        stand_ins, kernel.stand_ins, kernel.cdll = kernel.stand_ins, [], None
        kernel.of_loads().loader.forget()
        for stand_in in stand_ins:
            stand_in.is_installed = False
            if getattr(stand_in.owner, stand_in.name) is stand_in.ours:
                setattr(stand_in.owner, stand_in.name, stand_in.original)
            else:  # someone else has patched on top, and ours passes through
                core.reporter.changed(passes_through(stand_in.what), stays=True)
        if core.made("replacements"):
            core.replacements.follow(Registry((), {}))  # what a call asked for holds until `clear`
        self._lazy.uninstall()
        if core.made("end"):
            core.end.uninstall()
        if core.made("detection"):
            core.detection.forget()
        core.journal.write_to("")
        core.on_first_hit = core.load_plugins = None
        core.forget_callbacks()

    def in_place(self) -> tuple[str, ...]:
        """Return what is changed in this process now and will be put back, in words."""
        core, finders = self.core, self._finders()
        is_retired = finders.RetiredFinder in map(type, sys.meta_path)
        parts = (
            ("sys.meta_path: one finder", finders.place_of(core.kernel) >= 0),
            ("sys.meta_path: one place, until no import is under way", is_retired),
            *((stand_in.what, True) for stand_in in getattr(core.kernel, "stand_ins", ())),
            ("sys.set_lazy_imports_filter", self._lazy.is_installed),
        )
        exported = (f"os.environ[{MODE_VARIABLE!r}]",) if self._exported else ()
        there = (words for words, is_there in parts if is_there)
        replaced = core.replacements.places if core.made("replacements") else ()
        return (*there, *replaced, *exported)

    def trace(self) -> None:
        """Have the journal tell of every import, and of all that is mapped by whatever import."""
        core = self.core
        core.begin_trace()
        if core.is_installed:  # switched on by the .pth line, before us
            self._watch(core.kernel.watched)
            core.forget_callbacks()
        core.extensions.pythons_own = ImportCallbacks((), (core.recording.watch_extension,))

    def _create_context(self, device: str, *, at_boot: bool) -> None:
        """Create the context of a setting: once, and in the process that was started with it."""
        if self._context == device or os.getpid() != self.core.reporter.home:
            return
        self._context = device
        if at_boot:
            # Every Python that starts comes by here: pip, the servers of multiprocessing. The
            # first import of a watched module tells which of them is the program.
            self.core.pending_context = device
        else:
            self.core.create_context(device)

    def _report_late(self, *, at_start: bool) -> None:
        """Tell of rules that came too late, and of what is in the global symbol scope already."""
        core = self.core
        if core.kernel.of_loads().has_news() or any(map(is_imported, table.index.INITIALIZERS)):
            core.start_detection()
        self._load_late_plugins()
        if any(is_imported(name) for name in core.registry.by_module):
            from cudaguard.core.prerequisites import check_already_imported

            check_already_imported(core, at_start=at_start)

    def _load_late_plugins(self) -> None:
        for name in [name for name in self._plugins or () if is_imported(name)]:
            self._load_plugins(name)

    def _finders(self) -> Any:
        from cudaguard.hooks import finder

        return finder

    def _combined(self, layers: Sequence[Layer]) -> InForce:
        from cudaguard.core.settings import combine

        return combine(layers, self._added, self._environment())

    def _environment(self) -> Mapping[str, str]:
        """Return the environment as the user left it, without the mode we exported ourselves."""
        if not self._exported or os.environ.get(MODE_VARIABLE) != self._exported:
            return os.environ
        return {**os.environ, MODE_VARIABLE: self._exported_over or ""}

    def _report(self, wanted: InForce) -> None:
        from cudaguard.core import findings

        stays_off = wanted.mode == "off"  # an unknown word in the variable that activates us
        for problem in wanted.problems:
            finding = findings.bad_setting(problem, stays_off=stays_off)
            self.core.reporter.found(finding, stop=LATER, even_in_observe=True)

    # --- rule plug-ins --------------------------------------------------------------

    def _look_for_plugins(self, wanted: InForce, *, at_boot: bool) -> None:
        core = self.core
        if not wanted.plugins:
            self._plugins, self._entries = None, frozenset()
            core.on_first_hit = core.load_plugins = None
            return
        if self._plugins is None:
            self._find_plugins()
            if at_boot:
                # Later .pth files and start-up code may make further folders importable.
                core.on_first_hit = self._find_more_plugins
        core.load_plugins = self._load_plugins if self._plugins else None

    def _find_plugins(self) -> None:
        """Add the plug-ins on ``sys.path`` that were not found before."""
        found: dict[str, tuple[Entry, ...]] = {}
        try:
            if self.core.kernel.has_plugins():
                from cudaguard.core.rule_check import scan_plugins

                found = scan_plugins(sys.path)
        except program_errors(Exception) as error:
            self.core.broken("looking for rule plug-ins", error)
        waiting = dict(self._plugins or {})
        for module, entries in found.items():
            if new := tuple(entry for entry in entries if entry not in self._entries):
                waiting[module] = (*waiting.get(module, ()), *new)
        self._entries = self._entries.union(*found.values())
        self._plugins = waiting

    def _find_more_plugins(self) -> None:
        with self.lock:
            before = self._entries
            self._find_plugins()
        if self._entries != before:
            self.apply()

    def _load_plugins(self, name: str) -> None:
        """Add the rules of the plug-ins for a module that is about to be imported."""
        # Taken out first: the plug-in may import the module itself.
        entries = (self._plugins or {}).pop(name, ())
        if not entries:
            return
        from cudaguard.core import findings
        from cudaguard.core.rule_check import load_plugin

        rules: list[Sourced] = []
        for entry in entries:
            try:
                loaded = load_plugin(entry, known=table.rule_ids)
            except program_errors(Exception, SystemExit) as error:
                self.core.reporter.found(findings.plugin_failed(entry.value, name, error))
            else:
                rules += [(entry_of(rule), f"plug-in {entry.value}") for rule in loaded]
        self.add(*rules)


# --- Lazy imports (PEP 810, Python 3.15) ----------------------------------------------------------


class LazyFilter:
    """Keeps watched modules eager inside `guard()` blocks: those whose package is in `roots`.

    A lazy import comes to the finder at its first use, which may be behind the block. One that is
    not installed is left to fail where the program uses it. The interpreter has room for one
    filter, so the one that is there is asked as well. It is here, as a block may be entered while
    a search of another thread holds the lock of imports.
    """

    def __init__(self) -> None:
        self.roots: frozenset[str] = frozenset()
        self._previous: Callable[..., bool] | None = None
        self._ours: Callable[..., bool] | None = None

    @property
    def is_installed(self) -> bool:
        """True if the filter is in force."""
        return self._ours is not None

    def install(self) -> None:
        """Set the filter, where the interpreter has one."""
        setter = getattr(sys, "set_lazy_imports_filter", None)
        if setter is None or self.is_installed:
            return
        previous = self._previous = sys.get_lazy_imports_filter()  # type: ignore[attr-defined]  # 3.15

        # A new function each time: a later filter may still call the older one.
        def may_be_lazy(importer: str | None, name: str, fromlist: Any = None) -> bool:
            try:
                if self._ours is may_be_lazy and name.partition(".")[0] in self.roots:
                    from cudaguard.core.prerequisites import is_installed

                    if is_installed(name):
                        return False
            except own_errors(Exception):  # it may be lazy then, as without us
                pass
            return True if previous is None else previous(importer, name, fromlist)

        self._ours = may_be_lazy
        setter(may_be_lazy)

    def uninstall(self) -> None:
        """Put the previous filter back, unless someone else has set one since."""
        if self._ours is not None and sys.get_lazy_imports_filter() is self._ours:  # type: ignore[attr-defined]  # 3.15
            sys.set_lazy_imports_filter(self._previous)  # type: ignore[attr-defined]  # 3.15
        self._ours = self._previous = None


activation = Activation()  # that of this process
