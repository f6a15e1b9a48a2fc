"""What happens when a library is mapped, as opposed to a module imported.

The engine's other half: extensions about to be mapped, loads with RTLD_GLOBAL, and the look at
what a load has changed.
"""

from __future__ import annotations

import sys

from cudaguard.core.dlopen import RTLD_GLOBAL, CtypesPatch, FlagsPatch
from cudaguard.core.initializers import INITIALISERS
from cudaguard.core.net import Net
from cudaguard.files.calls import os
from cudaguard.files.foreign import ours
from cudaguard.system.modules import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from importlib.machinery import ModuleSpec
    from typing import Protocol

    from cudaguard.core import repair as repairs
    from cudaguard.core.excepthook import ErrorHook
    from cudaguard.core.finder import GuardFinder
    from cudaguard.core.host import Close, Host
    from cudaguard.features.cuda_init.detector.contexts import CudaDetector
    from cudaguard.features.duplicate_libraries.detector.duplicates import DuplicateDetector
    from cudaguard.features.extensions.detector import Refusals
    from cudaguard.features.symbol_scope.detector.scope import ScopeDetector
    from cudaguard.model import Rule

    class Engine(repairs.Engine, Host, Protocol):
        """What this half asks of `cudaguard.core.engine.Engine`."""

        finder: GuardFinder
        errors: ErrorHook | None


class Loads:
    """Decides and acts for the hooks around the loading of libraries.

    Args:
        engine: Knows the mode and the rules, and is told.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._detectors: tuple[ScopeDetector | DuplicateDetector, ...] = ()
        self.cuda: CudaDetector | None = None
        self._has_begun = False
        self._refusals: Refusals | None = None  # once there is one
        self.ctypes = CtypesPatch(self.scope_of_library, engine)
        self.flags = FlagsPatch(self.scope_of_extensions, engine)

    def patch_ctypes(self, *_: object) -> None:
        """Patch ctypes if the program has imported it."""
        ctypes = sys.modules.get("ctypes")
        # The class of ctypes itself, whatever a program has put in its place.
        for name in ("CDLL", "PyDLL"):
            there = peek(ctypes, name)
            for one in there.__mro__ if type(there) is type else ():
                is_own = one.__name__ == "CDLL" and one.__module__ == "ctypes"
                if is_own and peek(ctypes, "cdll") is not None:
                    self.ctypes.put_up(one, peek(ctypes, "DEFAULT_MODE"))
                    return

    def forget(self) -> None:
        """Stop looking; a later look begins anew."""
        if self.cuda is not None:
            self.cuda.forget()
        self._detectors, self.cuda = (), None
        self._has_begun = False
        if self._refusals is not None:
            self._refusals.forget()

    # --- before a load --------------------------------------------------------------

    def before_mapping(self, spec: ModuleSpec) -> None:
        """Prepare an extension about to be mapped (see `core.loader.Host`)."""
        self.before_load()
        if spec.origin is None:
            return
        from cudaguard.elf.reader import read_elf

        elf = read_elf(spec.origin)
        if elf.is_truncated:
            from cudaguard.features.extensions.repair import refuse_truncated

            refuse_truncated(self._engine, spec.origin, spec.name)
        if elf.runtime:
            from cudaguard.features.symbol_scope.detector.runtime import tell_of_runtime

            tell_of_runtime(self._engine, spec.name, spec.origin, elf.runtime)
        self._provide_for(spec, elf.needed)
        if self.flags.masked_for:
            from cudaguard.features.symbol_scope.patterns import rules_for_module
            from cudaguard.features.symbol_scope.repair.scope import leave_global

            rules = rules_for_module(self.flags.masked_for, self._engine.registry.scoping)
            leave_global(self._engine, rules, spec)
        for pattern, rule in self._engine.registry.shielding:
            from cudaguard.core.patterns import matches
            from cudaguard.features.symbol_scope.patterns import covers

            if matches(os.path.basename(spec.origin), (pattern,)) and covers(rule, spec.name):
                from cudaguard.features.symbol_scope.repair.scope import shield_extension

                shield_extension(self._engine, rule, spec)

    def before_library(self, library: str) -> None:
        """Look at a library that is about to be loaded by its path.

        Raises:
            ExtensionError: It is truncated, and the mode repairs.
        """
        if self._engine.mode == "off" or os.sep not in library:
            return
        from cudaguard.elf.reader import is_truncated

        if is_truncated(library):
            from cudaguard.features.extensions.repair import refuse_truncated

            refuse_truncated(self._engine, library)

    def before_load(self) -> None:
        """Look at what has changed so far, which is not this load's doing."""
        with self._safely():
            if self.cuda is not None:
                self.cuda.look()
            for detector in self._detectors:
                detector.look(None, "unseen")

    def _provide_for(self, spec: ModuleSpec, needed: tuple[str, ...]) -> bool:
        """Import what provides the libraries of an extension; True if something was imported."""
        known = self._engine.registry.providing
        providing = [(p, rule) for p, rule in known if rule.watch[0] not in sys.modules]
        if not providing:
            return False
        from cudaguard.core.patterns import fixed_part

        # The fixed part of a pattern first: nearly no library has it, and matching is not light.
        starts = tuple(fixed_part(p) for p, _ in providing)
        if any(name.startswith(starts) for name in needed):
            from cudaguard.features.import_order.repair.order import provide

            provide(self._engine, providing, needed, spec)
        return any(rule.watch[0] in sys.modules for _, rule in providing)

    def scope_of_library(self, library: str) -> tuple[bool, Callable[[], None]] | None:
        """Decide about a library to be loaded with RTLD_GLOBAL (see `core.dlopen.CtypesPatch`)."""
        scoping = self._engine.registry.scoping
        if not scoping:
            return None
        from cudaguard.features.symbol_scope.patterns import rules_for_library

        rules = rules_for_library(library, scoping)
        return self._scope(rules, os.path.basename(library), library, is_file=True)

    def scope_of_extensions(self, module: str) -> tuple[bool, Callable[[], None]] | None:
        """Decide about extensions to be loaded with RTLD_GLOBAL (see `core.dlopen.FlagsPatch`)."""
        self.look(must=True)
        scoping = self._engine.registry.scoping
        if not scoping:
            return None
        from cudaguard.features.symbol_scope.patterns import rules_for_module

        rules = rules_for_module(module, scoping)
        return self._scope(rules, f"extension modules of {module.partition('.')[0]}", module)

    def _scope(
        self, rules: tuple[Rule, ...], subject: str, source: str, *, is_file: bool = False
    ) -> tuple[bool, Callable[[], None]] | None:
        if not rules:
            return None
        from cudaguard.features.symbol_scope.facts import runtime_in
        from cudaguard.features.symbol_scope.repair.scope import scope_of

        return scope_of(self._engine, rules, subject, source, runtime_in(source) if is_file else "")

    # --- after a load ---------------------------------------------------------------

    def after_mapping(self, library: str, extension: str, flags: int) -> None:
        """Look at what a load has changed (see `core.loader.Host`)."""
        if self._engine.mode == "off":
            return
        if not self._has_begun:
            self.look()
            return
        with self._safely():
            flags_by = self.flags.set_by if extension else ("", "")
            for detector in self._detectors:
                detector.look((library, extension, bool(flags & RTLD_GLOBAL), flags_by))
            if self.cuda is not None:
                self.cuda.loaded(library, extension)

    def error_passes(self, error: BaseException) -> None:
        """Look at an error that leaves a guarded block, or ends the program."""
        if self._engine.mode == "off":
            return
        if self.cuda is not None:
            with self._safely():
                self.cuda.error_passes(error)
        if self._refusals is not None:
            self._refusals.error_passes(error)
        if isinstance(error, Exception):
            from cudaguard.core.passing_errors import error_passes

            error_passes(self._engine, error)

    def error_ends(self, error: BaseException) -> None:
        """Look at an error that ends the program, and record it for ``cudaguard run``."""
        self.error_passes(error)
        # Not of KeyboardInterrupt: what is imported here may evaluate a string (namedtuple does),
        # after which Python has forgotten that it is to end by SIGINT.
        if isinstance(error, Exception) and self._engine.journal.is_written:
            from cudaguard.core.passing_errors import record_end

            record_end(self._engine, error)

    def load_failed(self, error: Exception, library: str) -> None:
        """Look at why the loader has refused a library (see `core.loader.Host`)."""
        if self._engine.mode != "off":
            self._refused().load_failed(error, library)

    def _refused(self) -> Refusals:
        if self._refusals is None:
            from cudaguard.features.extensions.detector import Refusals

            self._refusals = Refusals(self._engine)
        return self._refusals

    def bring_missing(self, spec: ModuleSpec, error: ImportError) -> bool:
        """Import what has a library that one of an extension's libraries needs.

        What the extension needs itself was seen to before it was mapped. The loader looks for all
        libraries before it runs anything of them: after such a refusal a second try is a first one.
        An error that the extension's own code lets pass says nothing of this file, or of none.
        """
        from cudaguard.features.extensions.detector import NOT_FOUND

        missing, found, _ = str(error).partition(NOT_FOUND)
        if self._engine.mode == "off" or not found or spec.origin is None:
            return False
        refused = error.path
        if not isinstance(refused, str) or os.path.abspath(refused) != os.path.abspath(spec.origin):
            return False
        from cudaguard.elf.reader import read_elf

        if missing in read_elf(spec.origin).needed:
            return False
        return self._provide_for(spec, (missing,))

    def explained(self, spec: ModuleSpec, error: ImportError) -> ImportError | None:
        """Return an error that says why an extension was not loaded (see `core.loader.Host`)."""
        return None if self._engine.mode == "off" else self._refused().explained(spec, error)

    def _safely(self) -> Net:
        return Net(self._failed)

    def _failed(self, error: Exception) -> None:
        """Stop looking after a failure of ours: it is told once, and costs no repairs."""
        if self.cuda is not None:
            self.cuda.forget()
        self._detectors, self.cuda = (), None
        self._engine.broken("looking at libraries and at CUDA", error)

    def _interrupted(self) -> None:
        """Begin again at the next load: something of the program's has ended the first look."""
        self._detectors, self.cuda = (), None
        self._has_begun = False

    def window(self, spec: ModuleSpec) -> Close | None:
        """Watch an import: the CUDA driver, and how it fails (see `core.loader.Slots`)."""
        if self.cuda is None and self._is_asked_for(spec.name):
            self.look(must=True)
        close = None if self.cuda is None else self.cuda.window(spec)
        if spec.name not in self._engine.finder.watched:  # a part of a watched package
            return close

        def closing(error: BaseException | None) -> None:
            if close is not None:
                close(error)
            if error is not None and self._refusals is not None:
                self._refusals.error_passes(error)

        return closing

    def _is_asked_for(self, name: str) -> bool:
        """Is the module watched for what it does to the driver, rather than for a rule?"""
        if name in INITIALISERS:
            return True
        is_watched = name != "ctypes" and name in self._engine.finder.watched
        return is_watched and name not in self._engine.registry.by_module

    def own_use_of_cuda(self) -> AbstractContextManager[None]:
        """Have what happens to the CUDA driver inside the block attributed to us."""
        from contextlib import nullcontext

        self.look()
        return nullcontext() if self.cuda is None else self.cuda.own_use()

    def look(self, *, must: bool = False, at_install: bool = False) -> None:
        """Begin to look: who owns what in the global symbol scope, who initialises CUDA.

        Args:
            must: Import ctypes for it; otherwise it begins once the program has imported it.
            at_install: Is this the moment when the guard comes?

        Raises:
            ImportOrderError: in `strict`, see `ScopeDetector.look`.
        """
        ctypes = sys.modules.get("ctypes")
        is_there = peek(ctypes, "pythonapi") is not None  # otherwise half imported
        must = must and self._engine.mode not in ("observe", "warn")  # to import it is a change
        if self._engine.mode == "off" or self._has_begun or not (is_there or must):
            return
        self._has_begun = True  # once, whatever becomes of it: a failure must not cost repairs
        with Net(self._failed, self._interrupted):
            self._begin(at_install=at_install)

    def _begin(self, *, at_install: bool) -> None:
        from cudaguard.elf.process import uses_glibc

        if not uses_glibc():
            return
        try:
            from cudaguard.features.cuda_init.detector.contexts import CudaDetector
            from cudaguard.features.duplicate_libraries.detector.duplicates import DuplicateDetector
            from cudaguard.features.symbol_scope.detector.scope import ScopeDetector
        except ours(ImportError):  # a Python without ctypes has nothing to look with
            return
        self.cuda = CudaDetector(self._engine)
        since = "guard" if at_install else "ctypes"
        self._detectors = ScopeDetector(self._engine, since), DuplicateDetector(self._engine, since)
