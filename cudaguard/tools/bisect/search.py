"""Finds imports whose order makes a program fail: searches that ask, and the runs that answer.

The answer to one trial of one order is `GOOD`, `BAD` (the failure that is looked for) or `UNSURE`
(another failure). Sets are made small by delta debugging: Zeller and Hildebrandt, "Simplifying and
Isolating Failure-Inducing Input", IEEE TSE 28 (2002).
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import NamedTuple

from cudaguard.files import LARGEST, read_bytes
from cudaguard.model import Record
from cudaguard.system.child import run_command, telling_lines
from cudaguard.tools.common import Progress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cudaguard.system.child import Failure

    Names = tuple[str, ...]
    Trial = Callable[[Names], str]

GOOD = "good"
BAD = "bad"
UNSURE = "unsure"
MOST_PERMUTED = 4  # imports; beyond that only the likely orders are tried


class Answer(Record):
    """What a search has found."""

    failing: Names  # the smallest order found that fails
    working: Names = ()  # an order of the same imports, or with what they need; if one was found
    first: Names = ()  # the imports that must come first for it to work
    then: Names = ()  # those that they must precede; empty if that is the program itself


def ddmin(items: Sequence[str], holds: Callable[[Names], bool]) -> Names:
    """Return a part of `items`, in their order, that holds and no item of which can be left out.

    That all of them hold says the caller: `holds` is asked of parts that are neither empty nor all.
    """
    left = tuple(items)
    parts = 2
    while len(left) > 1:
        ends = [len(left) * number // parts for number in range(parts + 1)]
        chunks = [left[start:end] for start, end in zip(ends, ends[1:])]
        smaller = next((chunk for chunk in chunks if holds(chunk)), None)
        if smaller is not None:
            left, parts = smaller, 2
            continue
        without = (
            tuple(item for other in chunks if other is not chunk for item in other)
            for chunk in chunks
        )
        # With two parts each is the other's complement, which has just been asked.
        rest = next((some for some in without if parts > 2 and holds(some)), None)
        if rest is not None:
            left, parts = rest, max(parts - 1, 2)
        elif parts >= len(left):
            break
        else:
            parts = min(parts * 2, len(left))
    return left


def shortest_prefix(names: Names, trial: Trial) -> int:
    """Return the length of the shortest beginning that fails, given that the whole does.

    Beginnings fail from some length on: what has crashed does so whatever was to come.
    """
    works, fails = 0, len(names)
    while fails - works > 1:
        middle = (works + fails) // 2
        if trial(names[:middle]) == BAD:
            fails = middle
        else:
            works = middle
    return fails


def among(names: Names, trial: Trial, length: int = 0) -> Answer:
    """Search where a trial imports the names it is given, and nothing else.

    `length` is how many imports of `names` it takes to fail, if that is known.
    """
    length = length or shortest_prefix(names, trial)
    culprit = names[length - 1]
    if trial((culprit,)) == BAD:
        return _needing(culprit, tuple(name for name in names if name != culprit), trial)
    guilty = ddmin(names[: length - 1], lambda part: trial((*part, culprit)) == BAD)
    failing = (*guilty, culprit)
    for order in _other_orders(failing):
        if trial(order) == GOOD:
            if order[0] == culprit:
                return Answer(failing, order, (culprit,), guilty)
            # Whoever has come before the culprit's last companion must do so in future.
            place = order.index(failing[-1]) if order[-1] != failing[-1] else len(order) - 1
            return Answer(failing, order, order[:place], order[place:])
    return Answer(failing)


def _needing(culprit: str, others: Names, trial: Trial) -> Answer:
    """Search for what must precede an import that fails by itself."""
    if others and trial((*others, culprit)) == GOOD:
        needs = ddmin(others, lambda part: trial((*part, culprit)) == GOOD)
        return Answer((culprit,), (*needs, culprit), needs, (culprit,))
    if len(others) > 1:  # one of them may be in the way
        for other in others:
            if trial((other, culprit)) == GOOD:
                return Answer((culprit,), (other, culprit), (other,), (culprit,))
    return Answer((culprit,))


def _other_orders(failing: Names) -> Iterator[Names]:
    """Yield other orders of the same imports, the likely ones first."""
    from itertools import permutations

    tried = {failing}
    likely = [(failing[-1], *failing[:-1]), failing[::-1]]
    every = permutations(failing) if len(failing) <= MOST_PERMUTED else ()
    for order in (*likely, *every):
        if order not in tried:
            tried.add(order)
            yield order


def in_front(names: Names, trial: Trial) -> Answer | None:
    """Search where a trial puts some of its imports in front of a program; None: nothing helps."""
    cure = names[::-1]
    if trial(cure) == GOOD:
        cure = ddmin(cure, lambda part: trial(part) == GOOD)
    else:
        single = (name for name in cure if len(names) > 1 and trial((name,)) == GOOD)
        cure = tuple(name for name, _ in zip(single, range(1)))
    if not cure:
        return None
    last = max(names.index(name) for name in cure)
    before = tuple(name for name in names[:last] if name not in cure)
    if not before or trial((*before, *cure)) != BAD:
        # It is what the program does between its imports: all that is certain is that this helps.
        rest = tuple(name for name in names if name not in cure)
        if not rest:  # in an order of their own; a single one has none to precede
            return Answer(names, cure, cure[:-1] or cure, cure[-1:] if cure[1:] else ())
        return Answer(names, (*cure, *rest), cure, rest[:1])
    guilty = ddmin(before, lambda part: trial((*part, *cure)) == BAD)
    return Answer((*guilty, *cure), (*cure, *guilty), cure, guilty)


# --- What is run, and how it failed ---------------------------------------------------------------

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


def failure_words(kind: str, text: str) -> str:
    """Return how it fails, as the end of a sentence; see `cudaguard.system.child.Failure`."""
    return {
        "": "works",
        "hang": "does not end within the time limit",
        "signal": f"crashes with {text}",
        "error": f"fails with {text}",
        "exit": f"ends with status {text}",
    }[kind]


class TestedProgram:
    """A script or ``-m MODULE``, and its arguments; or, without words, imports alone."""

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
    """How one child ended, and what it had noted before."""

    failure: Failure  # of no kind, if it did not fail
    notes: list[tuple[str, str]]  # pairs of (what, module name) from its journal
    evidence: tuple[str, ...]  # the lines that tell most of what it printed

    def imports(self) -> list[str]:
        """Return what the program asked to be imported, in its order."""
        return list(dict.fromkeys(name for what, name in self.notes if what == "import"))

    def begun(self, names: Names) -> int:
        """Return how many of these imports had begun when it failed in one of them, else 0."""
        what, name = self.notes[-1] if self.notes else ("", "")
        return names.index(name) + 1 if what == "start" and name in names else 0


class Trials:
    """Runs children, counts them, and tells how it goes."""

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
        title: str,
        guard: Mapping[str, str] | None = None,
    ) -> Try:
        """Run one child that makes imports first; `guard` has variables, None: it is off."""
        self.runs += 1
        journal = os.path.join(self._folder, f"{self.runs}.txt")
        environ = {**os.environ, "CUDAGUARD": "off", "PYTHONFAULTHANDLER": "1"}
        if guard is not None:
            from cudaguard.tools.run.launch import guarded_environment

            del environ["CUDAGUARD"]
            environ = {**guarded_environment("fix", environ), **guard}
        environ.update({IMPORTS_VARIABLE: ",".join(names), JOURNAL_VARIABLE: journal})
        head = f"run {self.runs}: {title}"
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
    """Answers whether one order of imports fails as the program does in the run `seen`.

    `names` is the order that failed there; None if that was another command.
    """

    def __init__(
        self,
        trials: Trials,
        command: Sequence[str],
        seen: Try,
        names: Names | None,
        title: str = "{}",
    ) -> None:
        self._trials = trials
        self._command = command
        self._failure = seen.failure
        self._title = title
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
            title = self._title.format(", ".join(names) or "nothing")
            tried = self._trials.run(self._command, names, title)
            if is_like(tried.failure, self._failure):
                self.last = tried
                return BAD
            if tried.failure.kind:
                verdict = UNSURE
        self._trials.unsure += verdict == UNSURE
        return verdict
