"""Requests to repairs, each for one rule at one moment, and the outcomes that repairs report."""

from __future__ import annotations

from cudaguard.core.registry import made_once
from cudaguard.core.reports import LATER
from cudaguard.core.rule import permit_for
from cudaguard.errors import ImportOrderError
from cudaguard.hooks.caller import UserLine, caller_frame, describe, frame_outside_of, module_of
from cudaguard.model import KW_ONLY, TYPE_CHECKING, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType
    from typing import Any, Union

    from cudaguard.core.findings import Finding
    from cudaguard.core.registry import RuleEntry
    from cudaguard.core.replace import Replacements
    from cudaguard.core.reports import Reporter
    from cudaguard.core.rule import Permit, Rule

    Outcome = Union["Done", "WouldDo", "Refused"]
    Outcomes = Iterable[Outcome]

MISSED = object()  # an outcome of the moment `late`: the module came too early for this


class Done(Record):
    """A repair has worked."""

    subject: str
    how: str  # in words that follow the subject
    _: KW_ONLY
    verb: str = ""  # empty for the first of the repair's
    stays: bool = True  # after `uninstall`
    left: Finding | None = None  # a fault that is left all the same


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
        repairs: Any,  # who makes it (see `cudaguard.core.repairs`)
        entry: RuleEntry,  # the rule; its conditions hold here
        verbs: tuple[str, ...],  # those of its verbs that the repair does
        name: str,  # the module or extension concerned
        path: str | None = None,  # its file, if it has one
        *,
        can_raise: bool = False,  # may `strict` raise here?
        at_start: bool = False,  # is this the start of the interpreter, before the program?
    ) -> None:
        self.reporter: Reporter = repairs.reporter
        self._replacements: Callable[[], Replacements] = repairs.replacements
        self.scan_missed_loads: Callable[[], None] = repairs.scan_missed_loads
        self.entry, self.verbs = entry, verbs
        self.name, self.path, self.can_raise, self.at_start = name, path, can_raise, at_start
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

    @made_once
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
            if outcome.left is not None:
                reporter.found(outcome.left, frame, stop=LATER, verb=verb)
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
