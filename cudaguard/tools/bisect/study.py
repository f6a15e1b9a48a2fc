"""The course of `cudaguard bisect`: see it fail, search, prove what was found."""

from __future__ import annotations

import os
import shlex
import sys
from importlib.machinery import PathFinder

from cudaguard.files import write_text
from cudaguard.system.origins import LOCAL, STANDARD, distributions_of, origin_of
from cudaguard.tools.bisect import messages as report
from cudaguard.tools.bisect import search
from cudaguard.tools.bisect.causes import cause_of, missing_module
from cudaguard.tools.bisect.search import BAD, GOOD
from cudaguard.tools.bisect.shell_command import check_end
from cudaguard.tools.bisect.tested_program import TestedProgram
from cudaguard.tools.bisect.trials import (
    Oracle,
    Trials,
    Try,
    rules_at_work,
)
from cudaguard.tools.common import Progress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from cudaguard.tools.bisect.search import Answer, Failure

    Names = tuple[str, ...]

OURS = "cudaguard"  # putting it elsewhere would show nothing: the guard is off in the runs


class Study:
    """One search.

    Args:
        args: The command line.
        folder: A folder for what children note down.
    """

    def __init__(self, args: Namespace, folder: str) -> None:
        from time import monotonic

        self._args = args
        self._mode: str | None = args.mode  # of the guard in the runs; None: without it
        self._folder = folder
        self._started = monotonic()
        self._progress = Progress()
        self._tested = TestedProgram(args)
        self._trials = Trials(
            self._tested.environment(self._mode),
            limit=args.timeout,
            repeats=args.repeats,
            folder=folder,
            progress=self._progress,
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

    def document(self) -> dict[str, Any]:
        """Search, and return what was found."""
        from time import monotonic

        try:
            self._search()
        finally:
            self._progress.clear()
        self._found["runs"] = self._trials.runs
        self._found["unsure"] = self._trials.unsure
        self._found["seconds"] = round(monotonic() - self._started, 1)
        program = shlex.join(self._args.program) if self._args.cmd is None else ""
        return {
            "tool": "bisect",
            "what": report.headline(self._found),
            **self._found,
            "command": report.next_command(self._found, program, self._args.timeout),
        }

    # --- what is run ------------------------------------------------------------------------------

    def _search(self) -> None:
        if self._args.imports is not None:
            names = tuple(dict.fromkeys(name.strip() for name in self._args.imports.split(",")))
            self._from_list(names)
        else:
            self._from_program()

    def _from_list(self, names: Names) -> None:
        self._found["imports"] = list(names)
        command = self._tested.command(with_program=False)
        seen = self._see_it_fail(command, names, ", ".join(names))
        if seen is None or seen.failure is None:
            return
        if self._args.cmd is not None:
            check_end(self._args.cmd, seen)
        last = seen.running()
        if last and self._has_other_cause(seen, [*command, last], names):
            return
        oracle = Oracle(self._trials, command, seen.failure)
        oracle.knows(names, BAD)
        oracle.last = seen
        if self._args.cmd is not None and oracle(()) == BAD:  # it makes imports of its own
            self._conclude(search.in_front(names, oracle), oracle, names, with_program=True)
        else:
            self._conclude(
                search.among(names, oracle, _length(names, seen)), oracle, names, with_program=False
            )

    def _from_program(self) -> None:
        command = self._tested.command(with_program=True)
        seen = self._see_it_fail(command, (), self._tested.shown)
        if seen is None or seen.failure is None:
            return
        asked = seen.imports()
        origins = {name: origin_of(name, self._tested.path()) for name in asked}
        asked = [
            name
            for name in asked
            if origins[name] != STANDARD
            and name.partition(".")[0] != OURS
            and not (self._tested.is_module and name == self._tested.words[0])
        ]
        # Imports that the user's own modules make have been noted themselves.
        foreign = tuple(name for name in asked if origins[name] != LOCAL)
        every = tuple(asked)
        self._found["imports"] = list(foreign or every)
        if self._has_other_cause(seen, command, (*every, *self._tested.named_imports())):
            return
        alone = Oracle(self._trials, self._tested.command(with_program=False), seen.failure)
        behind = Oracle(self._trials, command, seen.failure, f"{{}}, then {self._tested.shown}")
        behind.knows((), BAD)
        behind.last = seen
        orders = [names for names in dict.fromkeys((foreign, every)) if names]
        for names in orders:
            if alone(names) == BAD and alone.last is not None:
                found = search.among(names, alone, _length(names, alone.last))
                if not found.working:
                    # What it did not come to import may be what it needs.
                    more = tuple(name for name in self._tested.named_imports() if name not in names)
                    if more and found.failing == (names[-1],):
                        found = search.among((*names, *more), alone, len(names))
                self._conclude(found, alone, names, behind=behind, with_program=False)
                return
        for names in orders:
            answer = search.in_front(names, behind)
            if answer is not None:
                self._conclude(answer, behind, names, behind=behind, with_program=True)
                return
        self._conclude(None, behind, foreign, with_program=True)

    def _see_it_fail(self, command: list[str], names: Names, told: str) -> Try | None:
        """Run it until it fails; None if it does not, or cannot say."""
        for _ in range(self._args.repeats):
            tried = self._trials.run(command, names, told, with_stacks=self._args.cmd is None)
            if tried.cannot_say:
                self._found["verdict"] = "cannot-say"
            if tried.failure is not None:
                self._found["verdict"] = "unexplained"
                self._found["failure"] = tried.failure.to_dict()
                return tried
        return None

    def _has_other_cause(self, seen: Try, command: list[str], names: Names) -> bool:
        """Return True if it fails for what no order changes; it takes one more run to say so.

        That run makes the imports in the reverse order first, twice, as one may need a later one,
        and has the guard, which may cure it as well.
        """
        if self._args.cmd is not None:
            return False
        shown = shlex.join(self._args.program)
        cause = cause_of(seen, self._tested.path(), shown)
        if cause is None:
            return False
        lost = missing_module(seen).partition(".")[0]
        tops = {name: name.partition(".")[0] for name in names[::-1]}
        others = tuple(name for name, top in tops.items() if top not in (lost, OURS))
        if others:
            environ = self._trials.environ
            if self._mode is None:
                environ = self._tested.environment("fix")
            told = f"{self._tested.shown}, its imports in reverse order and the guard on"
            again = self._trials.run(command, others * 2, told, environ, with_stacks=True)
            if not cause.is_like(cause_of(again, self._tested.path(), shown)):
                return False
        found = self._found
        found["verdict"], found["cause"] = "other-cause", cause.to_dict()
        found["evidence"] = seen.evidence()
        return True

    # --- what follows -----------------------------------------------------------------------------

    def _conclude(
        self,
        answer: Answer | None,
        oracle: Oracle,
        names: Names,
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
            in_order = search.reordered(names, answer)
            found["program_works"] = behind(in_order) == GOOD or behind(answer.working) == GOOD
        self._ask_the_guard()
        if answer.working and answer.then:
            self._write_rule()
        self._write_reproducer(last.failure if last is not None else None)

    def _ask_the_guard(self) -> None:
        """Find out whether the guard cures it as it is, and by which rules."""
        if self._mode is not None:
            return
        journal = os.path.join(self._folder, "guard.jsonl")
        cures = self._works_guarded("under the guard", CUDAGUARD_JOURNAL=journal)
        self._found["guard"] = {"cures": cures, "rules": rules_at_work(journal)}

    def _write_rule(self) -> None:
        """Write the rule down, read it as a user's file is read, and try it."""
        from datetime import date

        from cudaguard.config import read_file
        from cudaguard.core.rule_files import rules_from_tables
        from cudaguard.errors import RuleError

        fields = report.rule_fields(self._found, date.today().isoformat())
        path = os.path.join(self._folder, "cudaguard.toml")
        text = report.toml(fields)
        write_text(path, text)
        try:
            rules_from_tables(read_file(path).tables, path)
        except RuleError:  # a module cannot come before the package that it lies in
            return
        guard = self._found["guard"]
        cures = None
        if guard is not None and not guard["cures"]:
            cures = self._works_guarded("with the rule", CUDAGUARD_CONFIG=path)
        self._found["rule"] = {"id": fields["id"], "toml": text, "cures": cures}

    def _works_guarded(self, told: str, **variables: str) -> bool:
        """Return True if it works under the guard, as often as asked for."""
        environ = {**self._tested.environment("fix"), **variables}
        with_program = bool(self._tested.words) or self._args.cmd is not None
        names = () if self._tested.words else tuple(self._found["imports"])
        command = self._tested.command(with_program=with_program)
        shown = self._tested.shown if with_program else ", ".join(names)
        return all(
            tried.failure is None and not tried.cannot_say
            for _ in range(self._args.repeats)
            for tried in [self._trials.run(command, names, f"{shown} {told}", environ)]
        )

    def _write_reproducer(self, failure: Failure | None) -> None:
        found = self._found
        program = self._tested.words if found["with_program"] else []
        if self._args.cmd is not None:
            return
        path = self._tested.path()
        folder = self._tested.first_folder()
        # A compiled module counts as installed, wherever it is.
        is_local = any(
            origin_of(name, path) == LOCAL or PathFinder.find_spec(name.partition(".")[0], [folder])
            for name in found["failing"]
        )
        folder = folder if program or is_local else ""
        code = report.reproducer(found, program, folder, is_module=self._tested.is_module)
        place = os.path.join(self._folder, "reproducer.py")
        write_text(place, code)
        fails = failure is not None and any(
            tried.failure is not None and failure.is_like(tried.failure)
            for _ in range(self._args.repeats)
            for tried in [
                self._trials.run([sys.executable, place], (), "the program that shows it")
            ]
        )
        found["reproducer"] = {"code": code, "fails": fails}


def _length(names: Names, seen: Try) -> int:
    """Return how many imports had begun when the child failed in one of them, else 0."""
    running = seen.running()
    return names.index(running) + 1 if running in names else 0
