"""The course of `cudaguard bisect`: see it fail, search, prove what was found."""

from __future__ import annotations

import os
import re
import shlex
import sys
from importlib.machinery import PathFinder

from cudaguard.core.passing_errors import explain_text, known_errors
from cudaguard.files import write_text
from cudaguard.system.packages import LOCAL, STANDARD, distributions_of, origin_of
from cudaguard.system.shareable import program_alone
from cudaguard.tools.bisect import messages as report
from cudaguard.tools.bisect import trials as search
from cudaguard.tools.bisect.trials import BAD, GOOD, Oracle, TestedProgram, Trials, Try
from cudaguard.tools.common import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence
    from typing import Any

    from cudaguard.tools.bisect.trials import Answer, Failure

    Names = tuple[str, ...]

OURS = "cudaguard"  # putting it elsewhere would show nothing: the guard is off in the runs
NO_COMMAND = (126, 127)  # statuses of shells: it cannot be executed, and there is none
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_SLOT = re.compile(r"\b[A-Z]{4,}\b")  # what is to be filled in in the command of an explanation


class Study:
    """One search.

    Args:
        args: The command line.
        folder: A folder for what children note down.
    """

    def __init__(self, args: Namespace, folder: str) -> None:
        from time import monotonic

        self._args = args
        self._folder = folder
        self._started = monotonic()
        self._tested = TestedProgram(args)
        self._trials = Trials(
            self._tested.environment(is_guarded=False),
            limit=args.timeout,
            repeats=args.repeats,
            folder=folder,
        )
        self._found: dict[str, Any] = {
            "program": self._tested.program,
            "verdict": "works",
            "failure": None,
            "cause": None,
            "imports": [],
            "failing": [],
            "working": [],
            "first": [],
            "then": [],
            "with_program": False,
            "program_works": None,
            "versions": {},
            "evidence": [],
            "guard": None,
            "rule": None,
            "reproducer": None,
        }

    def search(self) -> None:
        """Search; what is found is in `document` then."""
        from time import monotonic

        try:
            if self._args.imports is not None:
                self._from_list()
            else:
                self._from_program()
        finally:
            self._trials.progress.clear()
        self._found["runs"] = self._trials.runs
        self._found["unsure"] = self._trials.unsure
        self._found["seconds"] = round(monotonic() - self._started, 1)

    def document(self, *, with_arguments: bool = True) -> dict[str, Any]:
        """Return what was found.

        Args:
            with_arguments: False to name the program alone, without what it has printed.
        """
        found, program = self._found, self._args.program
        if not with_arguments:
            program = program_alone(program)
            found = {**found, "program": program_alone(found["program"]), "evidence": []}
            if found["reproducer"]:
                code = self._reproducer(found, program_alone(self._tested.words))
                found["reproducer"] = {**found["reproducer"], "code": code}
        return {
            "tool": "bisect",
            "what": report.headline(found),
            **found,
            "command": report.next_command(found, shlex.join(program), self._args.timeout),
        }

    # --- what is run ------------------------------------------------------------------------------

    def _from_list(self) -> None:
        names = tuple(dict.fromkeys(name.strip() for name in self._args.imports.split(",")))
        self._found["imports"] = list(names)
        command = self._tested.command(with_program=False)
        seen, failure = self._see_it_fail(command, names, ", ".join(names))
        if seen is None or failure is None:
            return
        oracle = Oracle(self._trials, command, failure)
        oracle.knows(names, seen)
        if self._args.cmd is not None and oracle(()) == BAD:  # it makes imports of its own
            self._conclude(search.in_front(names, oracle), oracle, with_program=True)
        else:
            found = search.among(names, oracle, _length(names, seen))
            self._conclude(found, oracle, with_program=False)

    def _from_program(self) -> None:
        command = self._tested.command(with_program=True)
        seen, failure = self._see_it_fail(command, (), self._tested.shown)
        if seen is None or failure is None:
            return
        foreign, every = self._imports_of(seen)
        self._found["imports"] = list(foreign or every)
        named = self._tested.named_imports()
        if self._has_other_cause(seen, failure, command, (*every, *named)):
            return
        alone = Oracle(self._trials, self._tested.command(with_program=False), failure)
        behind = Oracle(self._trials, command, failure, f"{{}}, then {self._tested.shown}")
        behind.knows((), seen)
        orders = [names for names in dict.fromkeys((foreign, every)) if names]
        for names in orders:
            if alone(names) == BAD and alone.last is not None:
                found = search.among(names, alone, _length(names, alone.last))
                if not found.working:
                    # What it did not come to import may be what it needs.
                    more = tuple(name for name in named if name not in names)
                    if more and found.failing == (names[-1],):
                        found = search.among((*names, *more), alone, len(names))
                self._conclude(found, alone, behind=behind, with_program=False)
                return
        for names in orders:
            answer = search.in_front(names, behind)
            if answer is not None:
                self._conclude(answer, behind, behind=behind, with_program=True)
                return
        self._conclude(None, behind, with_program=True)

    def _imports_of(self, seen: Try) -> tuple[Names, Names]:
        """Return what the program imports: without its own modules, and with them."""
        program = self._tested.words[0] if self._tested.is_module else ""
        origins = {
            name: origin_of(name, self._tested.path())
            for name in seen.imports()
            if name != program and name.partition(".")[0] != OURS
        }
        every = tuple(name for name, origin in origins.items() if origin != STANDARD)
        # Imports that the user's own modules make have been noted themselves.
        return tuple(name for name in every if origins[name] != LOCAL), every

    def _see_it_fail(
        self, command: list[str], names: Names, told: str
    ) -> tuple[Try | None, Failure | None]:
        """Run it until it fails; return that run and how it failed, if it does and can say so.

        Raises:
            UsageError: The shell found no command to run.
        """
        for _ in range(self._args.repeats):
            tried = self._trials.run(command, names, told)
            if tried.cannot_say:
                self._found["verdict"] = "cannot-say"
            if tried.failure is not None:
                if self._args.cmd is not None and tried.failure.status in NO_COMMAND:
                    raise UsageError(
                        f"--cmd: {''.join(tried.evidence()[-1:])}",
                        command=shlex.join(command),
                    )
                self._found["verdict"] = "unexplained"
                self._found["failure"] = tried.failure.to_dict()
                return tried, tried.failure
        return None, None

    def _has_other_cause(
        self, seen: Try, failure: Failure, command: list[str], names: Names
    ) -> bool:
        """Return True if it fails with an error that no order changes; one more run says so.

        That run makes the imports in the reverse order first, twice, as one may need a later one,
        and has the guard, which may cure it as well.
        """
        cause = _cause_of(failure.error, self._tested.path())
        if cause is None:
            return False
        missing = _NO_MODULE.match(failure.error)
        without = (missing[1].partition(".")[0] if missing else "", OURS)
        others = tuple(name for name in names[::-1] if name.partition(".")[0] not in without)
        if others:
            environ = self._tested.environment(is_guarded=True)
            told = f"{self._tested.shown}, its imports in reverse order and the guard on"
            again = self._trials.run(command, others * 2, told, environ).failure
            if again is None or again.error != failure.error:
                return False
        self._found["verdict"], self._found["cause"] = "other-cause", cause
        self._found["evidence"] = seen.evidence()
        return True

    # --- what follows -----------------------------------------------------------------------------

    def _conclude(
        self,
        answer: Answer | None,
        oracle: Oracle,
        *,
        behind: Oracle | None = None,
        with_program: bool,
    ) -> None:
        found = self._found
        found["with_program"] = with_program
        last = oracle.last
        if last is not None:
            found["evidence"] = last.evidence()
        if answer is None:
            self._ask_the_guard()
            return
        if answer.working and not oracle.is_steady(answer):
            found["verdict"] = "by-chance"
            return
        found["failing"], found["working"] = list(answer.failing), list(answer.working)
        found["first"], found["then"] = list(answer.first), list(answer.then)
        found["verdict"] = "together" if not answer.working else "order"
        if answer.working and answer.failing == answer.then:
            found["verdict"] = "needs"
        tops = distributions_of((*answer.failing, *answer.working))
        found["versions"] = dict(sorted(tops.values()))
        if answer.working and behind is not None:
            found["program_works"] = behind(answer.working) == GOOD
        self._ask_the_guard()
        if answer.working and answer.then:
            self._write_rule()
        if self._args.cmd is None and last is not None and last.failure is not None:
            self._write_reproducer(last.failure)

    def _ask_the_guard(self) -> None:
        """Find out whether the guard cures it as it is, and by which rules."""
        from cudaguard.core.journal_reader import read_events
        from cudaguard.core.reports import Repaired

        journal = os.path.join(self._folder, "guard.jsonl")
        cures = self._works_guarded("under the guard", CUDAGUARD_JOURNAL=journal)
        events = (line.event for line in read_events(journal))
        rules = (event.rule for event in events if isinstance(event, Repaired))
        self._found["guard"] = {
            "cures": cures,
            "rules": list(dict.fromkeys(rule for rule in rules if rule)),
        }

    def _write_rule(self) -> None:
        """Write the rule down, read it as a user's file is read, and try it."""
        from datetime import date

        from cudaguard.config import read_file
        from cudaguard.core.rule_check import rules_from_tables
        from cudaguard.errors import RuleError

        fields = report.rule_fields(self._found, date.today().isoformat())
        path = os.path.join(self._folder, "cudaguard.toml")
        text = report.toml(fields)
        write_text(path, text)
        try:
            rules_from_tables(read_file(path).tables, path)
        except RuleError:  # a module cannot come before the package that it lies in
            return
        cures = None
        if not self._found["guard"]["cures"]:
            cures = self._works_guarded("with the rule", CUDAGUARD_CONFIG=path)
        self._found["rule"] = {"id": fields["id"], "toml": text, "cures": cures}

    def _works_guarded(self, told: str, **variables: str) -> bool:
        """Return True if it works under the guard, as often as asked for."""
        environ = {**self._tested.environment(is_guarded=True), **variables}
        with_program = bool(self._tested.words) or self._args.cmd is not None
        names = () if self._tested.words else tuple(self._found["imports"])
        command = self._tested.command(with_program=with_program)
        shown = self._tested.shown if with_program else ", ".join(names)
        return all(
            tried.failure is None and not tried.cannot_say
            for _ in range(self._args.repeats)
            for tried in [self._trials.run(command, names, f"{shown} {told}", environ)]
        )

    def _write_reproducer(self, failure: Failure) -> None:
        """Write a program that fails in the same way, and run it."""
        code = self._reproducer(self._found, self._tested.words)
        place = os.path.join(self._folder, "reproducer.py")
        write_text(place, code)
        fails = any(
            tried.failure is not None and failure.is_like(tried.failure)
            for _ in range(self._args.repeats)
            for tried in [
                self._trials.run([sys.executable, place], (), "the program that shows it")
            ]
        )
        self._found["reproducer"] = {"code": code, "fails": fails}

    def _reproducer(self, found: dict[str, Any], words: list[str]) -> str:
        program = words if found["with_program"] else []
        folder = self._tested.first_folder()
        return report.reproducer(found, program, folder, is_module=self._tested.is_module)


def _length(names: Names, seen: Try) -> int:
    """Return how many imports had begun when the child failed in one of them, else 0."""
    running = seen.running()
    return names.index(running) + 1 if running in names else 0


def _cause_of(error: str, path: Sequence[str]) -> dict[str, Any] | None:
    """Return what an error means if no order of imports changes it; None if one may.

    Args:
        error: The last line of a traceback; empty if there was none.
        path: Folders in which the program finds modules.
    """
    missing = _NO_MODULE.match(error)
    if missing:
        return None if _is_found(missing[1], path) else report.no_module(missing[1], error)
    finding = explain_text(error) if error else None
    if finding is None or not any(
        known.any_order for known in known_errors() if known.id == finding.id
    ):
        return None
    has_slot = not finding.command or _SLOT.search(finding.command)
    return {
        "id": finding.id,
        "what": finding.what,
        "evidence": [error],
        "remedy": finding.remedy,
        "command": f"cudaguard explain {finding.id}" if has_slot else finding.command,
    }


def _is_found(name: str, path: Sequence[str]) -> bool:
    """Return True if the package of a module is there: a part of it may come from another."""
    try:
        return PathFinder.find_spec(name.partition(".")[0], list(path)) is not None
    except Exception:  # what is on the path is not ours
        return True
