"""Dispatch of each watched import and load to the repairs and detectors that it concerns, in order.

The host of the hooks: one per process. It knows nothing of how it was switched on (that is
`cudaguard.core.lifecycle`), and no feature by name: repairs and detectors are found in the table.
It holds no lock while foreign code runs.
"""

from __future__ import annotations

import sys

from cudaguard.core.journal import Journal
from cudaguard.core.registry import Registry
from cudaguard.core.reports import Reporter
from cudaguard.core.rule import permit_for
from cudaguard.core.table import table
from cudaguard.files import LARGEST, os, own_errors, read_start
from cudaguard.hooks.barrier import NOTHING, ImportCallbacks
from cudaguard.hooks.caller import caller_frame, describe, importing
from cudaguard.hooks.dlopen import NOT_FOUND, RTLD_GLOBAL, RTLD_NOLOAD, LibraryLoads, LoaderFlags
from cudaguard.hooks.extensions import ExtensionLoads
from cudaguard.hooks.loader import stand_before
from cudaguard.hooks.own_imports import is_put_off
from cudaguard.model import TYPE_CHECKING, lazy
from cudaguard.system import peek

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from typing import Any

    from cudaguard.core.detection import Detection
    from cudaguard.core.prerequisites import Prerequisites
    from cudaguard.core.record import Recording
    from cudaguard.core.repairs import NativeRepairs, Repairs
    from cudaguard.core.replace import Replacements
    from cudaguard.core.rule import Permit, Rule
    from cudaguard.hooks.barrier import Close
    from cudaguard.hooks.last_error import LastError


class Dispatch:
    """Has the features do their part. Most processes need few of its parts, and late."""

    def __init__(self) -> None:
        self.context = "none"  # or "auto", or a device: see `cudaguard.config.parse_context`
        self.pending_context = ""  # a device, for the first watched import of the main process
        self.registry = Registry((), {})
        self.journal = Journal(lambda *what: self.reporter.no_journal(*what))  # noqa: PLW0108  # made later
        self.reporter = Reporter(self.journal)
        self.is_traced = False  # by `cudaguard trace`
        self.kernel: Any = None  # see `cudaguard.kernel.GuardFinder`; given by `cudaguard.api`
        self.extensions = ExtensionLoads(self)
        self.flags = LoaderFlags(self)
        self.seen: set[str] = set()  # watched modules that came through the hook
        self.imported: set[str] = set()  # those whose import went well
        self.early: set[str] = set()  # watched modules that were there before the guard
        # Called once, at the first watched import (plug-ins, when started from a .pth file).
        self.on_first_hit: Callable[[], None] | None = None
        # Adds the rules of a module's plug-ins; None where there are none left to load.
        self.load_plugins: Callable[[str], None] | None = None
        self._callbacks: dict[str, ImportCallbacks] = {}
        # Before 3.11 a loader that stays to the end of an import is seen in tracebacks: there only
        # for what is known, or asked, to be looked at.
        around = (self.watch_import,) if sys.version_info >= (3, 11) else ()
        self._plain = ImportCallbacks((self.record_import,), around)

    @property
    def is_installed(self) -> bool:
        """True if the guard is installed."""
        return self.reporter.mode != "off"

    def permit(self, rule: Rule | None = None) -> Permit:
        """Return what may be done now, for a rule or for none."""
        return permit_for(self.reporter.mode, rule.grade if rule is not None else "automatic")

    def made(self, name: str) -> Any:
        """Return a part if it was made, else None."""
        return vars(self).get(name)

    @lazy
    def repairs(self) -> Repairs:
        """The caller of the repairs."""
        from cudaguard.core.repairs import Repairs

        made = Repairs(self.reporter, lambda: self.replacements, self.scan_missed_loads, table)
        made.registry = self.registry
        return made

    @lazy
    def native(self) -> NativeRepairs:
        """The caller of those where something is mapped."""
        from cudaguard.core.repairs import NativeRepairs

        return NativeRepairs(self.repairs)

    @lazy
    def replacements(self) -> Replacements:
        """Attributes that are replaced for rules."""
        from cudaguard.core.replace import Replacements

        return Replacements(self.reporter)

    @lazy
    def detection(self) -> Detection:
        """The detectors."""
        from cudaguard.core.detection import Detection

        return Detection(self, table)

    @lazy
    def ctypes(self) -> LibraryLoads:
        """The loads by ctypes."""
        return LibraryLoads(self)

    @lazy
    def end(self) -> LastError:
        """The look at the error that ends the program."""
        from cudaguard.hooks.last_error import LastError

        return LastError(self.error_leaves)

    @lazy
    def recording(self) -> Recording:
        """Events that only a journal which is written to a file gets."""
        from cudaguard.core.record import Recording

        return Recording(self.journal, is_traced=self.is_traced)

    def begin_trace(self) -> None:
        """Note all that is mapped, by whatever import, to the end of the process."""
        self.is_traced = True
        vars(self).pop("recording", None)
        self.recording.look_until_the_end(self.scan_missed_loads)

    @property
    def is_looking(self) -> bool:
        """True if the detectors look at what is loaded."""
        return "detection" in vars(self) and self.detection.has_begun

    def forget_callbacks(self) -> None:
        """Decide anew at each later import."""
        self._callbacks = {}

    def put_in_force(self, registry: Registry) -> None:
        """Follow the rules of a registry from now on."""
        self.registry = registry
        vars(self).pop("native", None)
        if self.made("repairs"):
            self.repairs.registry = registry
        if self.made("replacements"):
            self.replacements.follow(registry)
        self.forget_callbacks()

    # --- a watched import -----------------------------------------------------------

    stand_before = stand_before

    def callbacks_for(self, name: str) -> ImportCallbacks:
        """Return what is to happen around the import of a watched module."""
        if self.reporter.mode == "off":  # uninstalled while the import was on its way
            return NOTHING
        self.seen.add(name)
        callbacks = self._callbacks.get(name)
        # Decided anew at each import: what is installed or set may have changed since a failed
        # one. Parts of a package ask as well, and are answered as the package was.
        if callbacks is None or name not in sys.modules:
            first, self.on_first_hit = self.on_first_hit, None
            if first is not None:
                first()
            if self.load_plugins is not None:
                self.load_plugins(name)
            callbacks = self._callbacks[name] = self._make_callbacks(name)
        return callbacks

    def _make_callbacks(self, name: str) -> ImportCallbacks:
        own = self.registry.by_module.get(name, ())
        orders = self.registry.opt_in_orders.get(name, ())
        is_plain = not orders and not any(rule.asks for rule in own) and name != "ctypes"
        if is_plain and self._plain.around and not self.journal.is_written:
            return self._plain
        before: list[Callable[[ModuleSpec], None]] = [self.record_import]
        # What else is reported is so at a call.
        if orders or any(rule.needs or (rule.grade == "report" and not rule.does) for rule in own):
            before += self.prerequisites().before(name)
        around: list[Callable[[ModuleSpec], Close | None]] = []
        after: list[Callable[..., None]] = []
        if any(rule.does for rule in own):
            before += self.repairs.before(name)
            after += self.repairs.after(name)
        if self._plain.around or name in table.initializers or not (own or orders):
            around.append(self.watch_import)
        if name == "ctypes" and RTLD_GLOBAL:
            after.append(self.ctypes_comes)
        if self.journal.is_written:
            around.append(self.recording.note_failure)
            after.append(lambda spec, _: self.recording.import_ended(spec.name))
        return ImportCallbacks(tuple(before), tuple(around), tuple(after))

    def prerequisites(self) -> Prerequisites:
        """Return what brings what must come first, by the rules in force."""
        from cudaguard.core.prerequisites import Prerequisites

        return Prerequisites(self, table)

    def record_import(self, spec: ModuleSpec) -> None:
        """Take note of the import of a watched module."""
        details, where = None, ""
        if self.is_traced:
            self.recording.scan_missed_loads()  # what has come before is not this import's doing
            details = {"importing": importing()}
        if self.journal.is_written:
            where = describe(caller_frame())
        self.journal.note("import", spec.name, where, details)
        if "ctypes" in sys.modules:
            self.kernel.patch()  # it was half imported when we were installed
        if spec.name == "ctypes":
            return  # which others try without needing it, and would do without
        if self.pending_context and self.reporter.channel.is_main_process():
            device, self.pending_context = self.pending_context, ""
            self.create_context(device)
        if self.reporter.deferred and spec.name in self.registry.by_module:
            self.reporter.raise_deferred(spec.name, spec.origin)

    def create_context(self, device: str) -> None:
        """Create the context that a setting asks for, where the mode permits it."""
        if self.permit().acts:
            table.resolve(table.index.PREREQUISITES["context"])(self, "", "", device)

    def watch_import(self, spec: ModuleSpec) -> Close | None:
        """Watch an import: what it does to the CUDA driver, and how it fails."""
        name = spec.name
        if not self.is_looking and self._is_asked_for(name):
            self.start_detection()
        closes = self.detection.publish("around_import", spec) if self.is_looking else []
        if name in self.imported:
            self.detection.publish("first_import", name, None)
        cores = _cores() if name in self.kernel.watched else frozenset()

        def close(error: BaseException | None) -> None:
            for end in reversed(closes):
                end(error)
            is_watched = name in self.kernel.watched  # else a part of a watched package
            if cores and _cores() < cores:
                self.detection.publish("thread_changed", name, "pins")
            if is_watched and error is None:
                self.imported.add(name)
            elif is_watched:
                self.detection.publish("first_import", name, error)
            if (detection := vars(self).get("detection")) is None:
                return
            if error is None:
                detection.imported(name)
            if is_watched:
                detection.error_passes(error)

        return close

    def _is_asked_for(self, name: str) -> bool:
        """Return True if the module is watched for what it does to the driver, not for a rule."""
        if name in table.initializers:
            package = name.partition(".")[0]
            file, text = table.index.BUILT_WITHOUT.get(package, ("", ""))
            folders: Any = peek(sys.modules.get(package), "__path__") if file else None
            if not isinstance(folders, list) or len(folders) != 1:
                return True
            try:
                return text.encode() not in read_start(f"{folders[0]}/{file}", LARGEST)
            except own_errors(OSError):
                return True
        if name in self.registry.by_module or name == "ctypes":
            return False
        return name in self.kernel.watched and name not in self.registry.opt_in_orders

    # --- before a load --------------------------------------------------------------

    def before_mapping(self, spec: ModuleSpec) -> tuple[str, Callable[[bool], None]] | None:
        """Prepare an extension about to be mapped.

        Return the file to map instead, and what to call when it was or was not; or None.
        """
        self.scan_missed_loads()
        if spec.origin is None:
            return None
        needed, runtime, is_truncated, copies = self._looked_into(spec.origin)
        if is_truncated:
            self.detection.publish("truncated", spec.origin, spec.name)
        self._make_room(spec.origin, spec.name, needed)
        self.native.mapping(spec, needed, self.flags.masked_for)
        if self.journal.is_written:
            self.recording.begins(spec.origin, spec.name)
        more = (spec.name, spec.origin, runtime)
        copies += self.detection.publish("runtime_exported", *more) if runtime else []
        if self.is_looking:
            self.detection.publish("mapping", copies[0][0] if copies else spec.origin, spec.name)
        return copies[0] if copies else None

    def _make_room(self, file: str, name: str, needed: tuple[str, ...]) -> None:
        loader = self.kernel.of_loads().loader
        own = {name.partition(".")[0]} if file in loader.crowding else set[str]()
        self.native.make_room(file, name, own.union(needed) - loader.names.keys())

    def _looked_into(self, file: str) -> tuple[tuple[str, ...], tuple[str, ...], bool, list[Any]]:
        """Return what a library needs, of what runtime it is, if it is cut short, and copies."""
        if sys.platform == "win32":
            from cudaguard.system import pe

            return pe.needed_by(file), (), False, []
        _, needed = self.kernel.of_loads().judged(file)
        if needed is not None:
            return needed, (), False, []
        from cudaguard.elf.reader import read_elf

        elf = read_elf(file)
        copies = self.detection.publish("closer_look", file)
        return elf.needed, elf.runtime, elf.is_truncated, copies

    def before_load(self, library: str, mode: int) -> tuple[str, Callable[[bool], None]] | None:
        """Look at a library, and at how things are, before it is loaded by ctypes.

        Return the file to load instead, and what to call when it was or was not; or None.
        """
        copies: list[Any] = []
        self.scan_missed_loads()
        if self.is_installed and os.sep in library:
            why, _ = self.kernel.of_loads().judged(library)
            if why.startswith("is"):
                self.detection.publish("truncated", library, None)
            elif why and not mode & RTLD_NOLOAD:
                needed, _, _, copies = self._looked_into(library)
                self._make_room(library, os.path.basename(library), needed)
                self.native.choose(library, os.path.basename(library), needed)
        elif self.is_installed and not mode & RTLD_NOLOAD:
            self.native.choose("", library, (library,))
        if self.journal.is_written:
            self.recording.begins(library)
        if self.is_looking and os.sep in library:
            self.detection.publish("mapping", library, "")
        return copies[0] if copies else None

    def scan_missed_loads(self) -> None:
        """Look at what has changed so far, which is nobody's doing who comes later."""
        loads = self.kernel.of_loads()
        self.kernel.thread.precise = loads.TINY * loads.HALF > 0
        if self._is_looking_now():
            self.detection.before_load()

    def scope_of_extensions(self, module: str) -> tuple[bool, Callable[[], object]] | None:
        """Decide about extensions to be loaded with RTLD_GLOBAL (see `LoaderFlags`)."""
        self.start_detection()
        return self.native.scope_of_extensions(module)

    def scope_of_library(self, library: str) -> tuple[bool, Callable[[], object]] | None:
        """Decide about a library to be loaded with RTLD_GLOBAL (see `LibraryLoads`)."""
        return self.native.scope_of_library(library)

    # --- after a load ---------------------------------------------------------------

    def after_mapping(self, library: str, extension: str, flags: int) -> None:
        """Look at what a load has changed; `extension` is empty for a load by ctypes."""
        if not self.is_installed:
            return
        loads = self.kernel.of_loads()
        if loads.begins_to_flush():
            name = extension or os.path.basename(library)
            self.detection.publish("thread_changed", name, "flushes")
        is_looking = self._is_looking_now()  # before others read the list, as it is by now
        if self.journal.is_written:
            self.recording.ended(library)
        if is_looking:
            by, is_global = self.flags.set_by if extension else ("", ""), bool(flags & RTLD_GLOBAL)
            self.detection.loaded(library, extension, is_global=is_global, flags_by=by)

    def load_failed(self, error: Exception, library: str) -> None:
        """Look at why the loader has refused a library, or with "" an extension module."""
        missing = str(error).partition(NOT_FOUND)[0] if NOT_FOUND in str(error) else ""
        if library and self.journal.is_written:
            self.journal.note("failed", library, describe(caller_frame()), {"missing": missing})
        if self.is_installed:
            if missing:
                self.detection.publish("not_found", missing)
            self.detection.publish("load_failed", error, library)

    def bring_missing(self, spec: ModuleSpec, error: ImportError) -> str:
        """Bring what an extension was refused for; return the file to be mapped then, or ""."""
        has_come = self.is_installed and self.native.provide_after(spec, error)
        return _file_or_copy(spec.origin or "") if has_come else ""

    def fetch_missing(self, library: str, error: OSError) -> str:
        """Bring what a library was refused for by ctypes; return the file to be opened then."""
        name = os.path.basename(library)
        has_come = self.is_installed and self.native.fetch(library, name, error)
        return _file_or_copy(library) if has_come else ""

    def explained(self, spec: ModuleSpec, error: ImportError) -> ImportError | None:
        """Return an error that says why an extension was not loaded, None to let it be."""
        if self.journal.is_written:
            self.journal.note("failed", spec.origin or "")
        answers = self.detection.publish("refused", spec, error) if self.is_installed else []
        return answers[0] if answers else None

    def error_passes(self, error: BaseException | None, *, is_printed: bool = False) -> None:
        """Look at an error that leaves a guarded block, or ends the program, if one does."""
        if not self.is_installed:
            return
        self.error_leaves(error)
        if error is not None and issubclass(type(error), Exception):
            from cudaguard.core.explain import error_passes

            error_passes(self.reporter, error, is_printed=is_printed)

    def error_leaves(self, error: BaseException | None) -> None:
        """Show the detectors an error that leaves a guarded block or ends the program."""
        self.detection.error_passes(error)
        if error is None:
            self.detection.publish("ended")
        elif issubclass(type(error), Exception):
            self.detection.error_passes(error, "error_leaves")

    def error_ends(self, error: BaseException | None) -> None:
        """Look at an error that ends the program, if one does; record it for ``cudaguard run``."""
        self.scan_missed_loads()  # nothing may have been loaded since CUDA was initialized
        self.error_passes(error, is_printed=True)
        # Not of KeyboardInterrupt: what is imported here may evaluate a string (namedtuple does),
        # after which Python has forgotten that it is to end by SIGINT.
        if error is not None and issubclass(type(error), Exception) and self.journal.is_written:
            from cudaguard.core.explain import record_end

            record_end(self.reporter, error)

    def broken(self, what: str, error: Exception) -> None:
        """Report a failure of the guard itself; never raises."""
        self.reporter.broken(what, error)

    # --- beginning to look ----------------------------------------------------------

    def ctypes_comes(self, *_: object) -> None:
        """Watch and use what the program has imported."""
        self.kernel.patch()
        if self._is_looking_now():
            self.detection.publish("ctypes_comes")

    def _is_looking_now(self) -> bool:
        """Return True if the detectors look, which they begin to if there is something to see."""
        if not self.is_looking:
            self.kernel.patch()  # it may have come past us
            if not self.kernel.of_loads().has_news():
                return False
            self.start_detection()
        return self.is_looking

    def start_detection(self) -> None:
        """Begin to look: who owns what in the global symbol scope, who initializes CUDA; may raise.

        Nothing is imported for it that changes the process: what the loader has is read from
        memory.
        """
        if not self.is_installed or self.is_looking or is_put_off(self.start_detection):
            return
        self.detection.has_begun = True  # once, whatever becomes of it
        self.kernel.of_loads().loader.takes_all = True
        from cudaguard.elf.process import uses_glibc

        if uses_glibc():
            loads = self.kernel.loads
            self.detection.begin(loads.loader if loads is not None else None)


def _cores() -> frozenset[int]:
    """Return the CPU cores that this thread may run on; none where the system does not tell."""
    try:
        return frozenset(os.sched_getaffinity(0))
    except own_errors(AttributeError, OSError):
        return frozenset()


def _file_or_copy(file: str) -> str:
    from cudaguard.system.memory_copies import copy_paths

    return copy_paths.get(file, file)
