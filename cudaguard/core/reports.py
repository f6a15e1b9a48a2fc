"""Record of what the guard found and changed in this process; the one way to report either.

Three verbs: something was `repaired` for a rule, something was `changed` beside that, a fault was
`found`. Who hears of a finding is decided here and nowhere else: by mode, severity, the detectors
that are switched off, and by what carries the finding already.
"""

from __future__ import annotations

import sys

from cudaguard.core.table import table
from cudaguard.errors import ImportOrderError
from cudaguard.files import is_refused, os, program_errors
from cudaguard.hooks.caller import caller_frame, describe
from cudaguard.hooks.own_imports import RefusedImportError
from cudaguard.model import TYPE_CHECKING, Record, lazy

if TYPE_CHECKING:
    from types import FrameType

    from cudaguard.core.findings import Finding
    from cudaguard.core.journal import Journal
    from cudaguard.core.reporter import Channel
    from cudaguard.hooks.caller import UserLine


class Later(str):
    """Error that `strict` raises at the next watched import; empty for what the finding says."""

    __slots__ = ()


LATER = Later()
STAYS = " (stays)"
PREREQUISITE = "prerequisite"  # the verb of a module that was imported first


def passes_through(what: str) -> str:
    """Return what is said of a replacement that somebody else has replaced again."""
    return f"{what}: passes through, under a later patch"


class Repaired(Record):
    """One repair that has worked."""

    rule: str  # id of the rule that asked for it, empty for none
    verb: str  # what was done, as rules name it
    subject: str  # to what: a module, a library, a variable
    how: str  # what has become of it, in words that follow the subject

    @property
    def words(self) -> str:
        """The repair in words, with its rule."""
        return f"{self.done} by {self.rule}" if self.rule else self.done

    @property
    def done(self) -> str:
        """The repair in words."""
        return f"{self.subject}: {self.how or self.verb}"


class Reporter:
    """Keeps and tells what was found and done; one per process."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.mode = "off"
        self.silenced: frozenset[str] = frozenset()  # detectors that are switched off
        self.home = os.getpid()
        self.explained = 0  # id() of the error that was explained last
        self._repairs: dict[Repaired, None] = {}  # each once, however often it is done
        # In `strict`: what could not be raised where it was found.
        self.deferred: list[str] = []
        self._changes: dict[str, bool] = {}  # what was changed -> does it stay after uninstall()?
        self._about: set[str] = set()
        self._has_failed = False  # and has said so: once is enough

    # --- the three verbs ------------------------------------------------------------

    def repaired(
        self,
        rule: str,
        verb: str,
        subject: str,
        how: str = "",
        *,
        stays: bool = True,
        frame: FrameType | UserLine | None = None,
    ) -> None:
        """Take note of a repair that has worked, and log it; never raises."""
        done = Repaired(rule, verb, subject, how)
        self._repairs[done] = None
        where = describe(frame)
        kind = verb if verb == PREREQUISITE else "repair"
        self.journal.note(kind, subject, where, done)
        if stays:
            self._changes[done.words] = True
        off = f"; to switch this off: CUDAGUARD_RULES=-{rule} or install(disable=[{rule!r}])"
        text = f"{done.done} at {where}" if where else done.done
        self.log(f"{rule}: {text}{off}" if rule else text)

    def changed(self, subject: str, *, stays: bool) -> None:
        """Take note that something in this process is not as it was."""
        self._changes[subject] = stays

    def put_back(self, subject: str) -> None:
        """Take note that what was changed is as it was."""
        self._changes.pop(subject, None)

    @property
    def changes(self) -> tuple[str, ...]:
        """Changes in words; those that stay after `uninstall` are marked."""
        known = dict(self._changes)
        return tuple(f"{subject}{STAYS}" if stays else subject for subject, stays in known.items())

    @property
    def lasting(self) -> tuple[str, ...]:
        """Changes that stay after `uninstall`, in words."""
        return tuple(subject for subject, stays in dict(self._changes).items() if stays)

    def found(
        self,
        finding: Finding,
        frame: FrameType | UserLine | None = None,  # the line of the program that it is about
        *,
        # what `strict` raises once it was told; a `Later` where nothing may be raised
        stop: Exception | Later | None = None,
        # does an error that is about to be raised say it? Then only `strict` says it as well, in
        # case that error is swallowed
        carried_by_error: bool = False,
        # does a note say it, on an error that the program has raised?
        noted_on_error: bool = False,
        only_logged: bool = False,  # is it said elsewhere, so that the log is enough?
        # is it about the guard's own settings, which every mode speaks of?
        even_in_observe: bool = False,
        about: str = "",  # what it is about, for `is_told_about`
        # for a finding of a rule: what was to be done. It gives the warning's category
        verb: str = "",
    ) -> bool:
        """Record a finding and, unless mode or severity say otherwise, warn of it.

        Return False if this process knows the finding already, or does not want to.

        Raises:
            CudaGuardWarning: if the user's filters turn a category of ours into an error.
            Exception: `stop`, in `strict`, also where it is no news.
        """
        if finding.id in self.silenced:
            return False
        if is_news := self.channel.record(finding):
            self.journal.note("finding", f"{finding.id} {finding.what}", describe(frame), finding)
            if about:
                self._about.add(about)
            is_heard = even_in_observe or self.is_heard(carried_by_error=carried_by_error)
            if is_heard and not noted_on_error and finding.severity != "info":
                kind = table.category_of(finding.id, verb)
                self.channel.tell(finding, kind, frame, only_logged=only_logged)
        if isinstance(stop, Later) and is_news and self.mode == "strict":
            self.deferred.append(stop or finding.as_error())
        try:
            if isinstance(stop, Exception):
                self.stop(stop)
        finally:
            del stop
        return is_news

    def is_heard(self, *, carried_by_error: bool = False) -> bool:
        """Return True if the mode has findings told (see `found`)."""
        return self.mode == "strict" or (self.mode != "observe" and not carried_by_error)

    def stop(self, error: Exception) -> None:
        """Raise an error for what was told, in `strict`."""
        try:
            if self.mode == "strict":
                raise error
        finally:
            del error  # or it and this frame keep each other, and what other frames hold

    # --- asked by others ------------------------------------------------------------

    def is_told_about(self, subject: str) -> bool:
        """Return True if something was found about it that says all there is to say."""
        return subject in self._about

    @property
    def repairs(self) -> tuple[Repaired, ...]:
        """Repairs, each once."""
        return tuple(self._repairs.copy())  # in one step, also without the GIL

    @lazy
    def channel(self) -> Channel:
        """The findings of this process."""
        from cudaguard.core.reporter import Channel

        return Channel(self.home)

    def raise_deferred(self, name: str, path: str | None) -> None:
        """Raise what `strict` could not raise where it was found.

        Raises:
            ImportOrderError: There is something.
        """
        if self.deferred and self.mode == "strict":
            problems, self.deferred = self.deferred, []
            raise ImportOrderError("\n".join(problems), name=name, path=path)

    # --- never raise ----------------------------------------------------------------

    def broken(self, what: str, error: Exception, *, is_of_log: bool = False) -> None:
        """Report a failure of the guard or of the program's log; loudly once, never raises."""
        if sys is None or sys.meta_path is None:
            return  # the interpreter shuts down
        if isinstance(error, RefusedImportError) or is_refused(error):
            return  # the program would not have us look
        # Short of memory, stack or files: the program's doing, not ours.
        is_silent = self._has_failed or type(error) in (MemoryError, RecursionError)
        is_silent |= getattr(error, "errno", 0) in (23, 24)  # ENFILE, EMFILE
        self._has_failed = self._has_failed or not is_silent
        try:
            from cudaguard.core import findings

            finding = (
                findings.log_failed(error) if is_of_log else findings.guard_failed(what, error)
            )
            self.found(finding, caller_frame(), only_logged=is_silent)
        except program_errors(Exception) as second:
            try:  # the last resort, as in an interpreter that shuts down
                if not is_silent:
                    sys.stderr.write(
                        f"cudaguard: {what} failed: {error!r}, and reporting it: {second!r}; was "
                        "cudaguard updated or removed meanwhile? Then start the program anew\n"
                    )
            except program_errors(Exception):
                return

    def no_journal(self, path: str, error: Exception) -> None:
        """Report that no journal can be written; never raises."""
        from cudaguard.core import findings

        try:
            self.found(findings.no_journal(path, error))
        except program_errors(Exception) as second:  # nobody can raise from a note in the journal
            self.broken("reporting that no journal is written", second)

    def log(self, text: str) -> None:
        """Write to the log; never raises."""
        from cudaguard.core.reporter import log

        try:
            log(text, level="INFO")
        except program_errors(Exception) as error:  # a handler of the program's own that raises
            self.broken("writing to the log", error, is_of_log=True)
