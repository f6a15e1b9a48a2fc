"""The report of `cudaguard lint`: gathers what is found, fixes what is to be, and prints."""

from __future__ import annotations

import sys

from cudaguard.files import LARGEST, read_bytes
from cudaguard.files.text import printable_data
from cudaguard.system.source_file import read, source_of
from cudaguard.tools import sarif
from cudaguard.tools.common import BROKEN, FOUND, OK, github, json_text, note, show
from cudaguard.tools.layout import Page, width_of
from cudaguard.tools.lint import messages as say
from cudaguard.tools.lint.excerpt import WIDEST
from cudaguard.tools.lint.found import findings, fixed
from cudaguard.tools.lint.rewrite import diff, rewrite

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence
    from typing import Any

    from cudaguard.model import Rule
    from cudaguard.system.source_file import Source

_NUMBER = 8  # columns that the number of a line takes


class Findings:
    """What is found in all files.

    Args:
        args: Of the command line.
        rules: Those whose order is checked.
    """

    def __init__(self, args: Namespace, rules: Sequence[Rule]) -> None:
        self.found: list[tuple[dict[str, Any], list[str]]] = []
        self.problems = 0  # files that could not be read or written
        self._args, self._rules = args, rules
        self._files = self._fixed = self._changed = 0

    def look(self, path: str) -> Source:
        """Look at a file, fix it if that is asked for, and return what was read of it."""
        source = read(path)
        self._files += 1
        if source.problem:
            self._tell_problem(path, source.problem)
        found = self._findings(source)
        if (self._args.fix or self._args.diff) and any(one["fixable"] for one, _ in found):
            left = self._fix(path)
            found = found if left is None else left
        self.found += found
        return source

    def _findings(self, source: Source) -> list[tuple[dict[str, Any], list[str]]]:
        import shlex

        given = ("--config", self._args.config) if self._args.config else ()
        command = shlex.join(("cudaguard", "lint", *given, "--fix", source.path))
        width = width_of(sys.stdout)
        widest = width - say.INDENT - _NUMBER if width else WIDEST
        return list(findings(source, self._rules, command, widest))

    def _fix(self, path: str) -> list[tuple[dict[str, Any], list[str]]] | None:
        """Fix a file, or show how; return what is left, None if the file stays as it is."""
        try:
            change = fixed(path, read_bytes(path, LARGEST), self._rules)
            if change.problem:
                note("lint", f"{path}: {change.problem}")
                return None
            if self._args.fix:
                rewrite(path, change)
        except OSError as error:
            self._tell_problem(path, f"cannot be fixed: {error.strerror or error}")
            return None
        self._fixed += change.count
        self._changed += 1
        if self._args.diff:
            show(diff(path, change))
        return self._findings(source_of(path, change.after))

    def status(self) -> int:
        """Return the exit status."""
        is_shown = self._args.diff and self._changed
        return BROKEN if self.problems else FOUND if self.found or is_shown else OK

    def _tell_problem(self, path: str, problem: str) -> None:
        self.problems += 1
        note("lint", f"{path}: {problem}")

    def show(self) -> None:
        """Print all of it, in the format that is asked for."""
        found = [one for one, _ in self.found]
        if self._args.format == "json":
            document = {
                "tool": "lint", "files": self._files, "unreadable": self.problems,
                "fixed": self._fixed, "findings": found,
            }  # fmt: skip
            show(json_text(document))
            return
        if self._args.format == sarif.FORMAT:
            show(sarif.of_lint(found))
            return
        for one, excerpt in self.found:
            self._show(one, excerpt)
        summary = say.summary(found, self._files)
        if self._changed:
            done = say.fixed(self._fixed, self._changed, is_done=self._args.fix)
            summary = f"{done}, {summary} left"
        note("lint", summary)

    def _show(self, one: dict[str, Any], excerpt: list[str]) -> None:
        if self._args.format == "github":
            where = {"file": one["path"]}
            if not one["cell"]:
                where.update(line=one["line"], col=one["column"])
            page = Page()
            say.write(one, (), page)
            text = str(page).partition(": ")[2]
            show(github("error", text, title=f"cudaguard {one['rule']}", **where))
        elif self._args.diff:  # standard output has the diff
            note("lint", f"{say.headline(one)}; {say.left(one['reason'])}")
        else:
            page = Page(sys.stdout)
            say.write(printable_data(one), excerpt, page)
            show(str(page))
