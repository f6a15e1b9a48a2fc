"""Loads that the dynamic loader has refused: explained, and told of only where the error matters.

A program that tries libraries one after the other and goes on is healthy, and hears nothing. What
the loader says is kept, without the error and its frames. It is looked into and told once that
error, or one that quotes it or shows it in its traceback, ends the program, leaves a guarded block
or fails the import of a watched module; once an error does so that follows from it, as the package
has gone on and lacks what the load should have given it; once a warning quotes it, by which a
package says that it goes on without the library; or at the end, if another copy would have done.
"""

from __future__ import annotations

import sys

from cudaguard.files import os, own_errors, text_of
from cudaguard.hooks.barrier import ON_PURPOSE, print_instead
from cudaguard.hooks.caller import (
    UserLine,
    caller_frame,
    describe,
    entries_of,
    frame_outside_of,
    module_of,
)
from cudaguard.model import TYPE_CHECKING, NamedTuple
from cudaguard.system import peek

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import FrameType
    from typing import Any

    from cudaguard.core.dispatch import Dispatch
    from cudaguard.core.findings import Finding

_MOST, _LONGEST = 32, 2000  # refusals that are kept; characters of a first error
_ABSENT = ": cannot open shared object file: No such file or directory"
_TLS = "static TLS block"
_DRIVER = ("libcuda.so", "libnvidia-ml.so")
_FOLLOWS = "The package went on without it, and this error probably follows from that."
_OF_LACK = (NameError, AttributeError, TypeError, ImportError, RuntimeError)  # not ValueError


class Refusal(NamedTuple):
    """A load that the loader has refused."""

    message: str  # by the loader
    path: str  # what was to be loaded
    name: str | None  # the extension module, None for a library
    place: UserLine | None  # that asked for it
    is_carried: bool = False  # an error of ours was raised that says it
    finding: Finding | None = None  # what cannot be told later

    def is_missed_in(self, error: BaseException) -> bool:
        """Return True if an error of its package follows from the load that was refused.

        A name is not defined, something is None, or the error has the extension's name.
        """
        module = self.name or module_of(self.place)
        package, _, last = module.rpartition(".")
        package, text = (package or last).partition(".")[0], text_of(error)
        passed = [module_of(entry.tb_frame).partition(".")[0] for entry in entries_of(error)]
        if not issubclass(type(error), _OF_LACK) or package not in passed:
            return False
        is_absent = issubclass(type(error), NameError) or "'NoneType' object" in text
        names = (f"'{last}'", f"{package}::", f"'{package}' object has no attribute")
        return (is_absent and passed[-1] == package) or any(name in text for name in names)


class ExtensionDetector:
    """Looks at loads that are refused, and at files that end too early."""

    def __init__(self, core: Dispatch) -> None:
        self._core = core
        self._kept: dict[str, Refusal] = {}  # by the loader's words: nothing was told of these
        # By module: what the error of its first import said, and where that was asked for; empty
        # where it went well, and it is imported again.
        self._first: dict[str, tuple[str, str]] = {}

    def truncated(self, path: str, name: str | None) -> None:
        """Keep the process alive: the loader would map a file that ends too early, and read on.

        Raises an ExtensionError in `fix` and `strict`; in the other modes it is told only.
        """
        from cudaguard.features.extensions.refusals import refuse_truncated

        if (found := refuse_truncated(path, name)) is None:
            return  # somebody has just completed it
        finding, error, frame = found
        is_refused = self._core.permit().acts
        self._core.reporter.found(finding, frame, carried_by_error=is_refused)
        if is_refused:
            raise error

    def thread_changed(self, name: str, how: str) -> None:
        """Undo what a load has changed of how this thread computes; tell where it may run now."""
        is_undone = how == "flushes" and self._may_undo() and keeps_subnormals()
        undone = "subnormal numbers are kept as before" if is_undone else ""
        self._tell_change(name, how, undone)

    def around_import(self, spec: ModuleSpec) -> Callable[[BaseException | None], None]:
        """Note who handles signals; return what looks whether the program's handlers are left."""
        is_taker = spec.name in _TAKE_SIGNALS and (self._may_undo() or "ctypes" in sys.modules)
        before = _handlers() if is_taker else {}

        def close(_: BaseException | None) -> None:
            for number, (handler, action) in _handlers().items() if before else ():
                own, saved = before.get(number, (None, action))
                if own is handler and saved[0] != action[0]:  # not by way of Python
                    import ctypes

                    from cudaguard.system.processes import signal_name

                    name, undone = signal_name(number), ""
                    if self._may_undo() and not ctypes.CDLL(None).sigaction(number, saved, None):
                        undone = f"the program's handler of {name} is back"
                    self._tell_change(spec.name, "handles", undone, name)

        return close

    def _may_undo(self) -> bool:
        from cudaguard.features.extensions.findings import THREAD

        return self._core.permit().acts and THREAD.id not in self._core.reporter.silenced

    def _tell_change(self, name: str, how: str, undone: str, about: str = "") -> None:
        from cudaguard.features.extensions import findings

        frame = caller_frame()
        if undone:
            self._core.reporter.repaired(findings.THREAD.id, how, name, undone, frame=frame)
        else:
            finding = findings.changed_thread(name, how, describe(frame), about)
            self._core.reporter.found(finding, frame)

    def load_failed(self, error: Exception, library: str) -> None:
        """Look why a library was refused, and keep the reason.

        A library that is not there at all says so itself.
        """
        message = str(error)
        is_known = message in self._kept or message == f"{library}{_ABSENT}"  # it is tried again
        if is_known or not sys.platform.startswith("linux"):
            return
        # The loader names the file of a library that was found by its name.
        path = library if os.sep in library else message.partition(": ")[0]
        if _TLS in message:
            from cudaguard.features.extensions.refusals import no_static_tls

            frame = caller_frame()
            finding = no_static_tls(message, describe(frame))
            self._keep(_refusal(message, path, None, frame)._replace(finding=finding))
        elif library and os.sep in path:  # of an extension `refused` hears
            self._keep(_refusal(message, path, None, frame_outside_of("torch")))

    def refused(self, spec: ModuleSpec, error: ImportError) -> ImportError | None:
        """Return an error that says why an extension was refused, in mode `strict`."""
        is_carried = self._core.reporter.is_heard(carried_by_error=True)  # in `strict`
        is_known = str(error) in self._kept and not is_carried  # tried again
        if is_known or not sys.platform.startswith(("linux", "win32")):
            return None
        if error.path != spec.origin:  # not the loader's: it was mapped, and says so itself
            return None
        refusal = _refusal(str(error), spec.origin or "", spec.name, caller_frame())
        raised = None
        if is_carried:
            finding, raised = self._look_into(refusal)
            if finding is None:
                return None
            refusal = refusal._replace(is_carried=True, finding=finding)
        self._keep(refusal)
        return raised

    def _look_into(self, refusal: Refusal) -> tuple[Finding | None, ImportError | None]:
        """Return why a load was refused; None if that is unknown, or was said already."""
        try:
            from cudaguard.features.extensions.refusals import looked_into
            from cudaguard.system.facts import Packages
        except own_errors(ImportError):  # a Python without ctypes has nothing to look with
            return None, None
        found = looked_into(refusal.message, refusal.path, refusal.name, describe(refusal.place))
        if found is None or any(map(self._core.reporter.is_told_about, found[1])):
            return None, None
        is_told = self._core.reporter.is_told_about(Packages().of(refusal.path))
        return found[0].replace(severity="info") if is_told else found[0], found[2]

    def _keep(self, refusal: Refusal) -> None:
        self._kept[refusal.message] = refusal
        while len(self._kept) > _MOST:
            self._kept.pop(next(iter(self._kept)), None)
        is_heard = self._core.reporter.is_heard(carried_by_error=refusal.is_carried)
        if is_heard or self._core.journal.is_written:
            self._core.end.install()

    def first_import(self, name: str, error: BaseException | None) -> None:
        """Take note of how the import of a watched module went that fails, or is made again."""
        if name not in self._first:
            said = where = ""
            if error is not None:  # one of another class could be anything that is asked
                said = text_of(error)[:_LONGEST] if type(error).__module__ == "builtins" else ""
                said, where = f"{type(error).__name__}: {said}", describe(caller_frame())
            self._first[name] = said, where
            self._core.end.install()

    def error_passes(self, error: BaseException, *, is_caught: bool = True) -> None:
        """Tell of the refusals that an error is about; not of KeyboardInterrupt.

        Who may catch it can do without CUDA: of a driver that is not there nothing is said yet.
        """
        if self._kept and issubclass(type(error), Exception):
            from cudaguard.core.known_errors import shown_with

            errors = [*shown_with(error)]
            said = "\n".join(map(text_of, errors))
            needless = _DRIVER if is_caught else ()
            self._tell(lambda one: one.message in said and not one.message.startswith(needless))
            self._tell(lambda refusal: any(map(refusal.is_missed_in, errors)), _FOLLOWS)

    def error_leaves(self, error: BaseException) -> None:
        """Tell of an import that was not the first one, where its error leaves the program."""
        from cudaguard.core.known_errors import shown_with

        self.error_passes(error, is_caught=False)
        errors = [*shown_with(error)] if self._first else ()
        said = [f"{type(one).__name__}: {text_of(one)[:_LONGEST]}" for one in errors]
        for text, one in zip(said, errors):
            for frame in (entry.tb_frame for entry in entries_of(one)):
                name = module_of(frame) if frame.f_code.co_name == "<module>" else ""
                first, where = self._first.get(name, (text, ""))
                if first not in said:  # else it is this one
                    from cudaguard.core.explain import GENERAL_ID, explain_text
                    from cudaguard.features.extensions.findings import imported_again

                    cause = explain_text(first, is_guarded=True) if first else None
                    cure = cause.remedy if cause is not None and cause.id != GENERAL_ID else ""
                    found = imported_again(name, first, where, text, cure)
                    self._core.reporter.found(found, caller_frame())
                    return

    def goes_on(self) -> None:
        """Tell of the refusals that a warning has quoted since; Python's note of it is read."""
        if self._kept:
            noted = [peek(module, "__warningregistry__") for module in list(sys.modules.values())]
            entries = [entry for table in noted if isinstance(table, dict) for entry in list(table)]
            texts = [str(entry[0]) for entry in entries if isinstance(entry, tuple)]
            said = "\n".join(texts)
            self._tell(lambda refusal: refusal.message in said, "The package goes on without it.")

    def ended(self) -> None:
        """Tell of those that an older copy has caused, where one that would do is installed."""
        if self._kept:
            from cudaguard.system.newer_copies import newer_than_found

            self._tell(lambda r: any(newer_than_found(r.path)), "The program went on without it.")

    def _tell(self, is_meant: Callable[[Refusal], bool], consequence: str = "") -> None:
        from cudaguard.core.known_errors import NUMBERS

        meant = [message for message, one in list(self._kept.items()) if is_meant(one)]
        # One thing in several versions was tried (libx.so.2, libx.so.1): the last one tells.
        last = {NUMBERS.sub("", message): message for message in meant}
        for message in meant:
            refusal = self._kept.pop(message)
            if message not in last.values():
                continue
            finding = refusal.finding or self._look_into(refusal)[0]
            if finding is None:
                continue
            finding = finding.replace(consequence=consequence or finding.consequence)
            try:
                self._core.reporter.found(
                    finding, refusal.place, carried_by_error=refusal.is_carried
                )
            except ON_PURPOSE as warning:  # the program's own error is the one to be raised
                print_instead(warning)

    def forget(self) -> None:
        """Forget them."""
        self._kept.clear()


def _refusal(message: str, path: str, name: str | None, frame: FrameType | None) -> Refusal:
    return Refusal(message, path, name, frame and UserLine(frame))


# --- What a load may change in the process --------------------------------------------------------

# What handles a signal of the program's then, and does not call the program's handler.
_TAKE_SIGNALS = ("paddle",)
# Machine -> the word of `fenv_t` that says it, and its bits: MXCSR's DAZ and FTZ, FPCR's FZ.
_FLUSHING = {"x86_64": (7, 0x8040), "aarch64": (0, 1 << 24)}


def keeps_subnormals() -> bool:
    """Have this thread compute with subnormal numbers again; return False if that is impossible."""
    machine = os.uname().machine if sys.platform.startswith("linux") else ""
    word, bits = _FLUSHING.get(machine, (0, 0))
    try:
        import ctypes

        own, state = ctypes.CDLL(None), (ctypes.c_uint32 * 64)()
        if bits and not own.fegetenv(state):
            state[word] &= ~bits
            own.fesetenv(state)
    except own_errors(ImportError, OSError, AttributeError):  # no ctypes, or odd C library
        return False
    return sys.float_info.min * 0.5 > 0


def _handlers() -> dict[int, tuple[Any, Any]]:
    """Return signal -> the program's handler in Python, and the ``struct sigaction`` of it."""
    try:
        import ctypes

        ask, signal = ctypes.CDLL(None).sigaction, sys.modules["_signal"]
    except own_errors(ImportError, OSError, AttributeError, KeyError):  # Windows, or no ctypes
        return {}
    found: dict[int, tuple[Any, Any]] = {}
    for number in range(1, signal.NSIG):
        handler, action = signal.getsignal(number), (ctypes.c_void_p * 64)()
        is_programs = callable(handler) and handler is not signal.default_int_handler
        if is_programs and not ask(number, None, action):
            found[number] = handler, action
    return found
