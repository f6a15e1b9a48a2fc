"""The course of `cudaguard bisect`: see it fail, search, prove what was found."""

from __future__ import annotations

import os
from time import monotonic

from cudaguard.files import write_text
from cudaguard.system.packages import LOCAL, STANDARD, distributions_of, origin_of
from cudaguard.system.shareable import program_alone
from cudaguard.system.source import imports_of_file
from cudaguard.tools.bisect import messages as report
from cudaguard.tools.bisect import search
from cudaguard.tools.bisect.search import BAD, GOOD
from cudaguard.tools.bisect.trials import Oracle, TestedProgram, Trials

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from cudaguard.tools.bisect.search import Answer, Names
    from cudaguard.tools.bisect.trials import Try

OURS = "cudaguard"  # putting it elsewhere would show nothing: the guard is off in the runs


class Study:
    """One search.

    Args:
        args: The command line.
        folder: A folder for what children note down.
    """

    def __init__(self, args: Namespace, folder: str) -> None:
        self._args = args
        self._folder = folder
        self._tested = TestedProgram(args.program)
        self._trials = Trials(args.timeout, args.repeats, folder)
        self._found: dict[str, Any] = {
            "program": list(args.program),
            "verdict": "works",
            "failure": None,
            "imports": [],
            "failing": [],
            "working": [],
            "first": [],
            "then": [],
            "program_works": None,
            "versions": {},
            "evidence": [],
            "guard": None,
            "rule": None,
        }

    def search(self) -> None:
        """Search; what is found is in `document` then."""
        started = monotonic()
        try:
            if self._args.imports is None:
                self._from_program()
            else:
                names = tuple(dict.fromkeys(map(str.strip, self._args.imports.split(","))))
                self._found["imports"] = list(names)
                command = self._tested.command(with_program=False)
                seen = self._see_it_fail(command, names, ", ".join(names))
                if seen is not None:
                    oracle = Oracle(self._trials, command, seen, names)
                    self._conclude(search.among(names, oracle, seen.begun(names)), oracle)
        finally:
            self._trials.progress.clear()
        self._found["runs"] = self._trials.runs
        self._found["unsure"] = self._trials.unsure
        self._found["seconds"] = round(monotonic() - started, 1)

    def document(self, *, with_arguments: bool = True) -> dict[str, Any]:
        """Return what was found; without arguments, the program alone, and not what it printed."""
        found = self._found
        if not with_arguments:
            found = {**found, "program": program_alone(found["program"]), "evidence": []}
        return {
            "tool": "bisect",
            "what": report.headline(found),
            **found,
            "command": report.next_command(found, self._args.timeout),
        }

    # --- what is run ------------------------------------------------------------------------------

    def _from_program(self) -> None:
        command = self._tested.command(with_program=True)
        seen = self._see_it_fail(command, (), self._tested.shown)
        if seen is None:
            return
        program = self._tested.words[0] if self._tested.is_module else ""
        path = self._tested.path()
        origins = {
            name: origin_of(name, path)
            for name in seen.imports()
            if name != program and name.partition(".")[0] != OURS
        }
        every = tuple(name for name, origin in origins.items() if origin != STANDARD)
        # Without the user's own modules: imports that these make have been noted themselves.
        foreign = tuple(name for name in every if origins[name] != LOCAL)
        self._found["imports"] = list(foreign or every)
        # What the script's own import statements name.
        said = () if self._tested.is_module else imports_of_file(self._tested.words[0])
        names_said = dict.fromkeys(one.module for one in said)
        named = [name for name in names_said if origin_of(name, path) != STANDARD]
        alone = Oracle(self._trials, self._tested.command(with_program=False), seen, None)
        behind = Oracle(self._trials, command, seen, (), f"{{}}, then {self._tested.shown}")
        orders = [names for names in dict.fromkeys((foreign, every)) if names]
        for names in orders:
            if alone(names) == BAD:
                found = search.among(names, alone, alone.last.begun(names))
                if not found.working:
                    # What it did not come to import may be what it needs.
                    more = tuple(name for name in named if name not in names)
                    if more and found.failing == (names[-1],):
                        found = search.among((*names, *more), alone, len(names))
                self._conclude(found, alone, behind)
                return
        for names in orders:
            answer = search.in_front(names, behind)
            if answer is not None:
                self._conclude(answer, behind, behind)
                return
        self._found["evidence"] = list(behind.last.evidence)
        self._ask_the_guard()

    def _see_it_fail(self, command: list[str], names: Names, told: str) -> Try | None:
        """Run it until it fails, as often as asked for; return that run."""
        for _ in range(self._args.repeats):
            tried = self._trials.run(command, names, told)
            if tried.failure.kind:
                self._found["verdict"] = "unexplained"
                self._found["failure"] = tried.failure._asdict()
                return tried
        return None

    # --- what follows -----------------------------------------------------------------------------

    def _conclude(self, answer: Answer, oracle: Oracle, behind: Oracle | None = None) -> None:
        """Prove an answer, and find out what cures it; `behind` tries the program, if any."""
        found = self._found
        found["evidence"] = list(oracle.last.evidence)
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

    def _ask_the_guard(self) -> None:
        """Find out whether the guard cures it as it is, and by which rules."""
        from cudaguard.core.journal_reader import read_events
        from cudaguard.core.reports import Repaired

        journal = os.path.join(self._folder, "guard.jsonl")
        cures = self._works_guarded("under the guard", CUDAGUARD_JOURNAL=journal)
        events = (line.event for line in read_events(journal))
        rules = dict.fromkeys(event.rule for event in events if isinstance(event, Repaired))
        self._found["guard"] = {"cures": cures, "rules": [*filter(None, rules)]}

    def _write_rule(self) -> None:
        """Write the rule down, read it as a user's file is read, and try it."""
        from datetime import date

        from cudaguard.config import read_file
        from cudaguard.core.rule_check import rules_from_tables
        from cudaguard.errors import RuleError

        id, text = report.rule_of(self._found, date.today().isoformat())
        path = os.path.join(self._folder, "cudaguard.toml")
        write_text(path, text)
        try:
            rules_from_tables(read_file(path).tables, path)
        except RuleError:  # a module cannot come before the package that it lies in
            return
        cures = None
        if not self._found["guard"]["cures"]:
            cures = self._works_guarded("with the rule", CUDAGUARD_CONFIG=path)
        self._found["rule"] = {"id": id, "toml": text, "cures": cures}

    def _works_guarded(self, told: str, **variables: str) -> bool:
        """Return True if it works under the guard, as often as asked for."""
        names = () if self._tested.words else tuple(self._found["imports"])
        command = self._tested.command(with_program=bool(self._tested.words))
        told = f"{self._tested.shown or ', '.join(names)} {told}"
        return not any(
            self._trials.run(command, names, told, variables).failure.kind
            for _ in range(self._args.repeats)
        )
