"""What `cudaguard bisect` runs in children, and how each of them failed."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import NamedTuple

from cudaguard.files import LARGEST, read_bytes
from cudaguard.system.child import run_command, telling_lines
from cudaguard.tools.bisect.messages import failure_words
from cudaguard.tools.bisect.search import BAD, GOOD, UNSURE
from cudaguard.tools.common import Progress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cudaguard.system.child import Failure
    from cudaguard.tools.bisect.search import Answer, Names

RUNNER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_bisect", "runner.py")
IMPORTS_VARIABLE = "CUDAGUARD_BISECT_IMPORTS"
JOURNAL_VARIABLE = "CUDAGUARD_BISECT_JOURNAL"
# Damaged memory ends in one of these or another, by chance.
CRASHES = frozenset(("SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTRAP"))


def is_like(one: Failure, other: Failure) -> bool:
    """Return True if that is the same failure, as far as can be told from outside."""
    if one.kind == other.kind == "signal":
        return one == other or {one.text, other.text} <= CRASHES
    return one.kind == other.kind and _essence(one.text) == _essence(other.text)


def _essence(error: str) -> str:
    """Return what two messages of one fault share: numbers and addresses differ from run to run."""
    name, _, text = error.partition(":")
    if not name.endswith(("ImportError", "ModuleNotFoundError", "OSError")):
        return name
    words = text.split()
    return " ".join([name, *(word for word in words if not any(c.isdigit() for c in word))])


class TestedProgram:
    """A program, or a list of imports.

    Args:
        program: The script or ``-m MODULE``, and its arguments; empty for imports alone.

    Attributes:
        shown: What it is called in messages.
        words: The script or module and its arguments; empty if there is none.
        is_module: True if the program is named as with ``python -m``.
    """

    def __init__(self, program: Sequence[str]) -> None:
        self.is_module = program[:1] == ["-m"]
        self.words = list(program[1:] if self.is_module else program)
        if self.words and not self.is_module:
            self.words[0] = os.path.abspath(self.words[0])
        self.shown = " ".join(program)

    def command(self, *, with_program: bool) -> list[str]:
        """Return the command line of a child: the program, or the imports alone."""
        kind = "module" if self.is_module else "script"
        what = [kind, *self.words] if with_program else ["imports", self._first_folder()]
        return [sys.executable, RUNNER, *what]

    def path(self) -> list[str]:
        """Return the folders in which the program finds its modules."""
        # In front of ours is the current folder, or that of the command itself.
        rest = sys.path if getattr(sys.flags, "safe_path", False) else sys.path[1:]
        is_safe = os.environ.get("PYTHONSAFEPATH") and hasattr(sys.flags, "safe_path")
        return [*rest] if is_safe else [self._first_folder(), *rest]

    def _first_folder(self) -> str:
        """Return what Python puts in front of the program's path."""
        if self.words and not self.is_module:
            return os.path.dirname(os.path.realpath(self.words[0]))
        return os.getcwd()


class Try(NamedTuple):
    """How one child ended, and what it had noted before.

    Args:
        failure: How it failed; of no kind, if it did not.
        notes: Pairs of (what, module name) from its journal.
        evidence: The lines that tell most of what it printed.
    """

    failure: Failure
    notes: list[tuple[str, str]]
    evidence: tuple[str, ...]

    def imports(self) -> list[str]:
        """Return what the program asked to be imported, in its order."""
        return list(dict.fromkeys(name for what, name in self.notes if what == "import"))

    def begun(self, names: Names) -> int:
        """Return how many of these imports had begun when it failed in one of them, else 0."""
        what, name = self.notes[-1] if self.notes else ("", "")
        return names.index(name) + 1 if what == "start" and name in names else 0


class Trials:
    """Runs children, counts them, and tells how it goes.

    Args:
        limit: Seconds for one child.
        repeats: How often an order is tried before it is called good.
        folder: A folder for journals.
    """

    def __init__(self, limit: float, repeats: int, folder: str) -> None:
        self.repeats = repeats
        self.progress = Progress()
        self.runs = 0
        self.unsure = 0
        self._limit = limit
        self._folder = folder

    def run(
        self,
        command: Sequence[str],
        names: Sequence[str],
        told: str,
        guard: Mapping[str, str] | None = None,
    ) -> Try:
        """Run one child.

        Args:
            command: What is run.
            names: Imports that it is to make first.
            told: What it is called in the progress.
            guard: The guard is on, with these variables; None: it is off.
        """
        self.runs += 1
        journal = os.path.join(self._folder, f"{self.runs}.txt")
        environ = {**os.environ, "CUDAGUARD": "off", "PYTHONFAULTHANDLER": "1"}
        if guard is not None:
            from cudaguard.tools.run.launch import guarded_environment

            del environ["CUDAGUARD"]
            environ = {**guarded_environment("fix", environ), **guard}
        environ.update({IMPORTS_VARIABLE: ",".join(names), JOURNAL_VARIABLE: journal})
        head = f"run {self.runs}: {told}"
        self.progress.running(f"{head} ...")
        ended = run_command(command, environ, self._limit)
        failure = ended.failure()
        self.progress.finished(f"{head}: {failure_words(*failure)}")
        text = ""
        with suppress(OSError):  # the child ended before it could note anything
            text = read_bytes(journal, LARGEST).decode("utf-8", "replace")
        pairs = (line.partition(" ") for line in text.split("\n") if line)
        notes = [(what, name) for what, _, name in pairs]
        return Try(failure, notes, telling_lines(ended.errors, RUNNER))


class Oracle:
    """Answers whether one order of imports fails as the program does.

    Args:
        trials: Runs the children.
        command: What to run; the imports are handed over in the environment.
        seen: The run with the failure that is looked for.
        names: The order that failed there; None if that was another command.
        told: What the runs are called in the progress.
    """

    def __init__(
        self,
        trials: Trials,
        command: Sequence[str],
        seen: Try,
        names: Names | None,
        told: str = "{}",
    ) -> None:
        self._trials = trials
        self._command = command
        self._failure = seen.failure
        self._told = told
        self._known = {names: BAD} if names is not None else {}
        self.last = seen  # the last one that failed in the way looked for

    def __call__(self, names: Names) -> str:
        """Try one order, as often as asked for: one failure settles it."""
        if names not in self._known:
            self._known[names] = self._try(names)
        return self._known[names]

    def is_steady(self, answer: Answer) -> bool:
        """Return True if what fails fails again, and what works works again."""
        # Without an order of its own that fails, the program as it is must.
        failing = answer.failing if self._known.get(answer.failing) == BAD else ()
        return self._try(failing) == BAD and self._try(answer.working) == GOOD

    def _try(self, names: Names) -> str:
        verdict = GOOD
        for _ in range(self._trials.repeats):
            told = self._told.format(", ".join(names) or "nothing")
            tried = self._trials.run(self._command, names, told)
            if is_like(tried.failure, self._failure):
                self.last = tried
                return BAD
            if tried.failure.kind:
                verdict = UNSURE
        self._trials.unsure += verdict == UNSURE
        return verdict
