"""What happens at a watched import or load: decide, act, tell.

The engine is the host of the hooks. There is one per process; it knows nothing of how it was
switched on (that is `cudaguard.api`). It holds no lock while foreign code runs, and
imports the parts that a hit needs only when there is one.
"""

from __future__ import annotations

import sys
from _thread import allocate_lock

from cudaguard.core.caller import UserLine, caller_frame, describe, importing
from cudaguard.core.extension_loads import ExtensionPatch
from cudaguard.core.finder import EveryTopLevel, GuardFinder, is_parting
from cudaguard.core.initializers import INITIALISERS
from cudaguard.core.journal import Journal
from cudaguard.core.lazy import LazyFilter
from cudaguard.core.loader import NOTHING, Slots
from cudaguard.core.loads import Loads
from cudaguard.core.own_imports import RefusedError
from cudaguard.core.registry import Registry
from cudaguard.errors import CudaGuardWarning, ImportOrderError, ImportOrderWarning
from cudaguard.files.calls import os
from cudaguard.files.foreign import theirs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from importlib.machinery import ModuleSpec
    from types import FrameType

    from cudaguard.core.excepthook import ErrorHook
    from cudaguard.core.mapping import Mappings
    from cudaguard.core.replace import Replaced
    from cudaguard.core.reporter import Channel
    from cudaguard.model import Finding

_PASSES_THROUGH = "{}: passes through, under a later patch (stays)"


class Engine:
    """Decides and acts for the hooks."""

    def __init__(self) -> None:
        self.mode = "off"
        self.context = "none"  # or "auto", or a device: see `cudaguard.config.parse_context`
        self.pending_context = ""  # a device, for the first watched import of the main process
        self.registry = Registry((), {})
        self.journal = Journal(self._no_journal)
        self.finder = GuardFinder(self)
        self.extensions = ExtensionPatch(self)
        self.loads = Loads(self)
        self.lazy = LazyFilter()
        self.errors: ErrorHook | None = None  # under `cudaguard run`
        self.changes: dict[str, None] = {}  # what stays after uninstall(), in order
        self.replaced: dict[str, Replaced] = {}  # attributes of modules that rules name, by place
        self.seen: set[str] = set()  # watched modules that came through the hook
        self.early: set[str] = set()  # watched modules that were there before the guard
        # Called once, at the first watched import (plug-ins, when started from a .pth file).
        self.on_first_hit: Callable[[], None] | None = None
        # Adds the rules of a module's plug-ins; None where there are none left to load.
        self.load_plugins: Callable[[str], None] | None = None
        # In `strict`: what could not be raised where it was found.
        self.deferred: list[str] = []
        # Rules whose libraries have become global all the same, and are to be demoted.
        self.wanted_back: set[str] = set()
        self._slots: dict[str, Slots] = {}
        self._channel: Channel | None = None
        self._made: dict[str, Channel] = {}
        self._noted: Mappings | None = None  # while a journal is written
        self._is_traced = False  # by `cudaguard trace`
        self._has_failed = False  # and has said so: once is enough
        self.plain = Slots((self.arrived,), (self.loads.window,))
        self.home = os.getpid()
        self._may_move = allocate_lock()  # never released: a flag that is tested and set at once

    # --- switched by wiring ---------------------------------------------------------

    def configure(
        self, mode: str, context: str, registry: Registry, extra: tuple[str, ...]
    ) -> None:
        """Take over mode, context and rules; each part is published by one assignment."""
        self.mode, self.context = mode, context
        self._put_back()  # `activation` has those put up again that the new rules want
        if mode != "strict":
            self.deferred = []
        self.registry = registry
        self._slots = {}
        watched = dict.fromkeys((*registry.by_module, *INITIALISERS, *extra, "ctypes"))
        if self._is_traced or "*" in watched:
            watched = EveryTopLevel(watched)
        self.finder.watched = self.extensions.watched = watched
        self.lazy.roots = frozenset(
            name.partition(".")[0] for rule in registry.rules for name in (*rule.watch, *rule.needs)
        )

    def put_up(self) -> None:
        """Put the hooks in place; does nothing for those that are."""
        if not self.finder.is_up:
            self._may_move = allocate_lock()
        if not self.finder.is_first:  # asked for again, after another finder was put in front
            self.finder.put_first()
        self.extensions.put_up()
        self.loads.flags.put_up()
        self.lazy.put_up()
        if self.errors is not None:
            self.errors.put_up()
        self.loads.patch_ctypes()

    def take_down(self) -> None:
        """Put back everything that can be put back."""
        self.mode = "off"
        self.deferred = []
        self.finder.take_away()
        self.finder.watched = self.extensions.watched = {}
        for what, clean in (
            ("ExtensionFileLoader.create_module", self.extensions.take_down()),
            ("sys.setdlopenflags", self.loads.flags.take_down()),
            ("ctypes.CDLL.__init__", self.loads.ctypes.take_down()),
        ):
            if not clean:
                self.changes[_PASSES_THROUGH.format(what)] = None
        self._put_back()
        self.lazy.take_down()
        if self.errors is not None:
            self.errors.take_down()
        self.loads.forget()
        self.journal.write_to("")
        self.on_first_hit = self.load_plugins = None
        self._slots = {}

    def _put_back(self) -> None:
        found, self.replaced = self.replaced, {}  # an import in another thread may add to it
        for place, replaced in found.items():
            if not replaced.undo():
                self.changes[_PASSES_THROUGH.format(place)] = None

    def replace(self, place: str, replaced: Replaced) -> None:
        """Take note of an attribute that was replaced, to be put back."""
        self.replaced[place] = replaced
        self.changes.pop(_PASSES_THROUGH.format(place), None)

    # --- asked by the hooks ---------------------------------------------------------

    def slots_for(self, name: str) -> Slots:
        """Return what is to happen around the import of `name` (see `core.loader.Host`)."""
        if self.mode == "off":  # uninstalled while the import was on its way
            return NOTHING
        self.seen.add(name)
        slots = self._slots.get(name)
        # Decided anew at each import: what is installed or set may have changed since a failed
        # one. Parts of a package ask as well, and are answered as the package was.
        if slots is None or name not in sys.modules:
            first, self.on_first_hit = self.on_first_hit, None
            if first is not None:
                first()
            if self.load_plugins is not None:
                self.load_plugins(name)
            from cudaguard.core.slots import slots_of

            slots = self._slots[name] = slots_of(self, name)
        return slots

    def before_mapping(self, spec: ModuleSpec) -> None:
        """Prepare an extension about to be mapped (see `core.loader.Host`)."""
        self.loads.before_mapping(spec)
        if self.journal.is_written:
            self._mappings().begins(spec.origin or "", spec.name)

    def before_load(self, library: str) -> None:
        """Look at a library before it is loaded (see `core.loader.Host`)."""
        self.loads.before_load()
        self.loads.before_library(library)
        if self.journal.is_written:
            self._mappings().begins(library)

    def load_failed(self, error: Exception, library: str) -> None:
        """Look at why the loader has refused a library (see `core.loader.Host`)."""
        if library and self.journal.is_written:
            self.journal.note("failed", library)
        self.loads.load_failed(error, library)

    def bring_missing(self, spec: ModuleSpec, error: ImportError) -> bool:
        """Import what has the library that an extension lacks (see `core.loader.Host`)."""
        return self.loads.bring_missing(spec, error)

    def explained(self, spec: ModuleSpec, error: ImportError) -> ImportError | None:
        """Say why an extension was not loaded (see `core.loader.Host`)."""
        if self.journal.is_written:
            self.journal.note("failed", spec.origin or "")
        return self.loads.explained(spec, error)

    def after_mapping(self, library: str, extension: str, flags: int) -> None:
        """Look at what a load has changed (see `core.loader.Host`)."""
        if self.journal.is_written and self.mode != "off":
            self._mappings().ended(library)
        self.loads.after_mapping(library, extension, flags)

    def import_ended(self, name: str, kind: str = "imported") -> None:
        """Note in the journal that an import has ended; traced, after what it mapped past us."""
        if self._is_traced:
            self._mappings().look()
        self.journal.note(kind, name)

    def _mappings(self) -> Mappings:
        if self._noted is None:
            from cudaguard.core.mapping import Mappings

            self._noted = Mappings(self.journal, is_whole=self._is_traced)
        return self._noted

    def trace(self) -> None:
        """Have the journal tell of every import, and of all that is mapped by whatever import."""
        self._is_traced = True
        if self.mode != "off":  # switched on by the .pth line, before us
            self.finder.watched = self.extensions.watched = EveryTopLevel(self.finder.watched)
            self._slots = {}
        mappings = self._mappings()
        self.extensions.pythons_own = Slots((), (mappings.window,))
        mappings.look_until_the_end(self.loads.before_load)

    def broken(self, what: str, error: Exception) -> None:
        """Report a failure of the guard itself; never raises (see `core.loader.Host`)."""
        if sys is None or sys.meta_path is None or isinstance(error, RefusedError):
            return  # the interpreter shuts down; or the program would not have us look
        is_silent = isinstance(error, (MemoryError, RecursionError)) or self._has_failed
        self._has_failed = self._has_failed or not is_silent
        try:
            from cudaguard.core import messages

            finding, loud = messages.guard_failed(what, error), self.mode != "observe"
            self.tell(finding, CudaGuardWarning, frame=caller_frame(), loud=loud and not is_silent)
        except theirs(Exception) as second:
            try:  # the last resort, as in an interpreter that shuts down
                if not is_silent:
                    sys.stderr.write(
                        f"cudaguard: {what} failed: {error!r}, and reporting it: {second!r}; was "
                        "cudaguard updated or removed meanwhile? Then start the program anew\n"
                    )
            except theirs(Exception):
                return

    # --- around an import -----------------------------------------------------------

    def arrived(self, spec: ModuleSpec) -> None:
        """Take note of the import of a watched module (see `cudaguard.core.slots`)."""
        details = None
        if self._is_traced:
            self._mappings().look()  # what has come before is not this import's doing
            details = {"importing": importing()}
        self.journal.note("import", spec.name, describe(caller_frame()), details)
        if not self.finder.is_first:
            self._regain_position()
        self.loads.patch_ctypes()  # it was half imported when we were installed
        if self.pending_context and spec.name != "ctypes" and self.channel.is_main_process():
            from cudaguard.features.cuda_init.repair.creation import create_as_set

            device, self.pending_context = self.pending_context, ""
            create_as_set(self, device)
        # Not at the import of ctypes, which others try without needing it: the error would be
        # swallowed there, and they would do without ctypes.
        if self.deferred and self.mode == "strict" and spec.name in self.registry.by_module:
            problems, self.deferred = self.deferred, []
            raise ImportOrderError("\n".join(problems), name=spec.name, path=spec.origin)

    def _regain_position(self) -> None:
        if not self.finder.is_up:
            return
        other = sys.meta_path[0]
        # Once, by one thread: two hooks that insist on the first place would fight for ever.
        if self._may_move.acquire(False):
            self.finder.put_first()
        else:
            from cudaguard.core import messages

            self.tell(messages.position_lost(other), ImportOrderWarning)

    # --- telling --------------------------------------------------------------------

    def in_place(self) -> tuple[str, ...]:
        """Return what is changed in this process now and will be put back, in words."""
        parts = (
            ("sys.meta_path: one finder", self.finder.is_up),
            ("sys.meta_path: one place, until no import is under way", is_parting()),
            ("importlib.machinery.ExtensionFileLoader.create_module", self.extensions.is_up),
            ("sys.setdlopenflags", self.loads.flags.is_up),
            ("ctypes.CDLL.__init__", self.loads.ctypes.is_up),
            ("sys.set_lazy_imports_filter", self.lazy.is_up),
            ("sys.excepthook", self.errors is not None and self.errors.is_up),
        )
        return (*(words for words, is_there in parts if is_there), *self.replaced)

    def tell(
        self,
        finding: Finding,
        category: type[CudaGuardWarning],
        *,
        frame: FrameType | UserLine | None = None,
        loud: bool | None = None,
    ) -> bool:
        """Record a finding and, unless the mode or its severity says otherwise, warn of it.

        Returns:
            False if this process knows the finding already, or does not want to.
        """
        channel = self.channel
        if finding.id in self.registry.silenced or not channel.record(finding):
            return False
        self.journal.note("finding", f"{finding.id} {finding.what}", describe(frame), finding)
        if loud is None:
            loud = self.mode != "observe" and finding.severity != "info"
        if loud:
            channel.tell(finding, category, frame)
        return True

    @property
    def channel(self) -> Channel:
        """The findings of this process."""
        if self._channel is None:
            from cudaguard.core.reporter import Channel

            # Threads that come here at once get the same one: what it is told must not be lost.
            self._channel = self._made.setdefault("channel", Channel(self.home))
        return self._channel

    def _no_journal(self, path: str, error: Exception) -> None:
        from cudaguard.core import messages

        finding = messages.no_journal(path, error)
        try:
            self.tell(finding, CudaGuardWarning, loud=self.mode != "observe")
        except Exception as second:  # nobody can raise from a note in the journal
            self.broken("reporting that no journal is written", second)

    def own_use_of_cuda(self) -> AbstractContextManager[None]:
        """Have what happens to the CUDA driver inside the block attributed to us."""
        return self.loads.own_use_of_cuda()

    def log(self, text: str) -> None:
        """Write to the log that a repair has worked; never raises."""
        from cudaguard.core.reporter import log

        try:
            log(text, level="INFO")
        except theirs(Exception) as error:  # a handler of the program's own that raises
            self.broken("writing to the log", error)
