"""Who has asked for the guard, and keeping the process in line with it.

What is in force is computed from the open layers anew at every change, so that blocks may be
left in any order and the last one to be left restores what was there before.
"""

from __future__ import annotations

import sys
from _thread import RLock

from cudaguard.config import MODE_VARIABLE
from cudaguard.core.engine import Engine
from cudaguard.core.loader import ON_PURPOSE, is_imported
from cudaguard.core.registry import Registry
from cudaguard.core.settings import BUILT_IN_IDS, Layer, combine
from cudaguard.errors import CudaGuardWarning
from cudaguard.files.calls import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudaguard.core.plugins import Entry
    from cudaguard.core.replace import Replaced
    from cudaguard.core.settings import InForce, Sourced


class Activation:
    """The state that `install` and its kin change; one per process.

    The lock is never held while code of the program or of a plug-in runs.
    """

    def __init__(self) -> None:
        self.engine = Engine()
        self._base: Layer | None = None  # by install() or by the environment
        self._blocks: tuple[Layer, ...] = ()  # open guard() blocks
        self._added: tuple[Sourced, ...] = ()  # by add_rule() and by plug-ins that were hit
        self._plugins: dict[str, tuple[Entry, ...]] | None = None  # None: not looked for yet
        self._entries: frozenset[Entry] = frozenset()  # all that were ever found
        self._context = ""  # the setting by which a context was created, or is to be
        self.requested: dict[str, Replaced] = {}  # replaced by a call, until it is cleared
        self._exported = ""  # the mode that was put into the environment, for children
        self._exported_over: str | None = None  # what stood there before
        self._lock = RLock()
        self._pid = os.getpid()

    @property
    def lock(self) -> RLock:
        """The lock of this process."""
        # A fork copies it as another thread may have held it: a child begins anew.
        if self._pid != os.getpid():
            self._pid, self._lock = os.getpid(), RLock()
        return self._lock

    @property
    def is_up(self) -> bool:
        """Is the guard up?"""
        return self.engine.mode != "off"

    def install(self, layer: Layer) -> None:
        """Put a layer on top of what was installed before."""
        with self.lock:
            self._base = layer.over(self._base or Layer())
        self.apply()

    def boot(self) -> None:
        """Activate by the environment alone; does nothing where somebody has asked before."""
        if self._base is None:
            self._base = Layer(alone=True)
            self.apply()

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
            self.engine.replaced.update(self.requested)
            self.requested = {}
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

    @property
    def is_exported(self) -> bool:
        """Is the environment changed, for children?"""
        return bool(self._exported)

    def registry_if_installed(self) -> Registry:
        """Return the rules that a plain `install` would put in force."""
        would = combine((Layer(),), self._added, self._environment())
        return Registry(would.rules, would.switches)

    def apply(self) -> None:
        """Bring the process in line with the open layers.

        Raises:
            CudaGuardWarning: if the user's filters turn a category of ours into an error.
        """
        engine = self.engine
        try:
            with self.lock:
                before = engine.mode
                layers = [layer for layer in (self._base, *self._blocks) if layer]
                wanted = combine(layers, self._added, self._environment())
                if wanted.mode == "off":
                    engine.take_down()
                else:
                    self._look_for_plugins(wanted, at_boot=all(layer.alone for layer in layers))
                    registry = Registry(wanted.rules, wanted.switches)
                    watched = (*(self._plugins or ()), *wanted.watch)
                    engine.configure(wanted.mode, wanted.context, registry, watched)
                    engine.put_up()
                self._export(wanted.mode if any(one.children for one in layers) else "off")
            # From here on foreign code may run: metadata, warnings, the user's filters.
            if engine.mode != "off":
                engine.journal.write_to(wanted.journal)
            if engine.mode != before:
                engine.journal.note("uninstall" if engine.mode == "off" else "install", engine.mode)
            if layers and wanted.problems:
                self._report(wanted)
            if engine.mode != "off" and engine.context not in ("none", "auto"):
                self._create_context(engine.context, at_boot=all(layer.alone for layer in layers))
            if engine.mode != "off":
                self._look_back(at_start=all(layer.alone for layer in layers))
        except ON_PURPOSE:
            raise
        except Exception as error:
            # The program has asked for a guard and not for its faults.
            engine.broken("switching the guard", error)

    def _create_context(self, device: str, *, at_boot: bool) -> None:
        """Create the context of a setting: once, and in the process that was started with it."""
        if self._context == device or os.getpid() != self.engine.home:
            return
        self._context = device
        if at_boot:
            # Every Python that starts comes by here: pip, the servers of multiprocessing. The
            # first import of a watched module tells which of them is the program.
            self.engine.pending_context = device
        else:
            from cudaguard.features.cuda_init.repair.creation import create_as_set

            create_as_set(self.engine, device)

    def _look_back(self, *, at_start: bool) -> None:
        """Tell of rules that came too late, and of what is in the global symbol scope already."""
        self.engine.loads.look(at_install=True)
        for name in [name for name in self._plugins or () if is_imported(name)]:
            self._load_plugins(name)
        if any(is_imported(name) for r in self.engine.registry.replacing for name in r.watch):
            from cudaguard.core.replacements import put_up_where_imported

            put_up_where_imported(self.engine)
        if any(is_imported(name) for name in self.engine.registry.by_module):
            from cudaguard.core.hindsight import report_late

            report_late(self.engine, at_start=at_start)

    def _environment(self) -> Mapping[str, str]:
        """Return the environment as the user left it, without the mode we exported ourselves."""
        if not self._exported or os.environ.get(MODE_VARIABLE) != self._exported:
            return os.environ
        return {**os.environ, MODE_VARIABLE: self._exported_over or ""}

    def _report(self, wanted: InForce) -> None:
        from cudaguard.core import messages

        stays_off = wanted.mode == "off"  # an unknown word in the variable that activates us
        for problem in wanted.problems:
            finding = messages.bad_setting(problem, stays_off=stays_off)
            new = self.engine.tell(finding, CudaGuardWarning, loud=True)
            if new and wanted.mode == "strict":
                self.engine.deferred.append(problem)

    # --- rule plug-ins --------------------------------------------------------------

    def _look_for_plugins(self, wanted: InForce, *, at_boot: bool) -> None:
        engine = self.engine
        if not wanted.plugins:
            self._plugins, self._entries = None, frozenset()
            engine.on_first_hit = engine.load_plugins = None
            return
        if self._plugins is None:
            self._find_plugins()
            if at_boot:
                # Later .pth files and start-up code may make further folders importable.
                engine.on_first_hit = self._find_more_plugins
        engine.load_plugins = self._load_plugins if self._plugins else None

    def _find_plugins(self) -> None:
        """Add the plug-ins on ``sys.path`` that were not found before."""
        from cudaguard.core.plugins import scan

        try:
            found = scan(sys.path)
        except Exception as error:
            found = {}
            self.engine.broken("looking for rule plug-ins", error)
        waiting = dict(self._plugins or {})
        for module, entries in found.items():
            new = tuple(entry for entry in entries if entry not in self._entries)
            if new:
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
        from cudaguard.core import messages
        from cudaguard.core.plugins import load

        rules: list[Sourced] = []
        for entry in entries:
            try:
                loaded = load(entry, known=BUILT_IN_IDS)
            except (Exception, SystemExit) as error:
                finding = messages.plugin_failed(entry.value, name, error)
                self.engine.tell(finding, CudaGuardWarning)
            else:
                rules += [(rule, f"plug-in {entry.value}") for rule in loaded]
        self.add(*rules)


activation = Activation()  # that of this process
