"""What `cudaguard bisect` runs in child processes, and how each of them ended."""

from __future__ import annotations

import os
import sys

from cudaguard.files import LARGEST, read_bytes
from cudaguard.model import KW_ONLY, Record
from cudaguard.system.child import run_command
from cudaguard.system.packages import STANDARD, origin_of
from cudaguard.tools.bisect.messages import SHELL, failure, name_of
from cudaguard.tools.common import Progress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cudaguard.system.child import Ended

    Names = tuple[str, ...]
    Trial = Callable[[Names], str]

# --- Finds imports whose order makes a program fail: searches that ask, and run nothing -----------
# The answer to one trial of one order is `GOOD`, `BAD` (the failure that is looked for) or `UNSURE`
# (another failure, or "cannot say"). Sets are made small by delta debugging: Zeller and
# Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE 28 (2002).

GOOD = "good"
BAD = "bad"
UNSURE = "unsure"

CANNOT_SAY = 125
# Damaged memory ends in one of these or another, by chance.
CRASHES = frozenset(("SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTRAP"))
MOST_PERMUTED = 4  # imports; beyond that only the likely orders are tried


class Failure(Record):
    """How a child failed.

    Args:
        kind: ``signal``, ``hang`` or ``status``.
        signal: Name of the signal that ended it, as in ``SIGSEGV``.
        status: Exit status, for the kind ``status``.
        error: Last line of the Python traceback that it printed, if it did.
    """

    kind: str
    _: KW_ONLY
    signal: str = ""
    status: int | None = None
    error: str = ""

    def is_like(self, other: Failure) -> bool:
        """Return True if that is the same failure, as far as can be told from outside."""
        if self.kind != other.kind:
            return False
        if self.kind == "signal":
            return self.signal == other.signal or {self.signal, other.signal} <= CRASHES
        return self.status == other.status and _essence(self.error) == _essence(other.error)


def error_of(output: str) -> str:
    """Return the line of an uncaught Python exception at the end of what a program printed."""
    # What is printed while the interpreter ends may follow it.
    for line in reversed(output.rstrip().splitlines()[-20:]):
        name, colon, _ = line.partition(":")
        last = name.rpartition(".")[2]
        is_name = all(part.isidentifier() for part in name.split("."))
        if is_name and last[:1].isupper() and (colon or last.endswith(("Error", "Exit"))):
            return line
    return ""


def _essence(error: str) -> str:
    """Return what two messages of one fault share: numbers and addresses differ from run to run."""
    name, _, text = error.partition(":")
    if not name.endswith(("ImportError", "ModuleNotFoundError", "OSError")):
        return name
    words = text.split()
    return " ".join([name, *(word for word in words if not any(c.isdigit() for c in word))])


class Answer(Record):
    """What a search has found.

    Args:
        failing: The smallest order found that fails.
        working: An order of the same imports, or with what they need, that works; empty if
            none was found.
        first: The imports that must come first for it to work.
        then: The imports that they must precede; empty if that is the program itself.
    """

    failing: Names
    working: Names = ()
    first: Names = ()
    then: Names = ()


def ddmin(items: Sequence[str], holds: Callable[[Names], bool]) -> Names:
    """Return a part of `items`, in their order, that holds and no item of which can be left out.

    Args:
        items: Holds, says the caller; is not asked again.
        holds: Is asked of parts that are neither empty nor the whole.
    """
    left = tuple(items)
    parts = 2
    while len(left) > 1:
        chunks = _split(left, parts)
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


def _split(items: Names, parts: int) -> list[Names]:
    ends = [len(items) * number // parts for number in range(parts + 1)]
    return [items[start:end] for start, end in zip(ends, ends[1:])]


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

    Args:
        names: An order that fails.
        trial: Tries one order.
        length: How many imports of `names` it takes to fail, if that is known.
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
    """Search where a trial puts imports in front of a program that fails without them.

    Args:
        names: What the program imports, in its order.
        trial: Tries the program with some imports in front.

    Returns:
        None if no imports in front cure it.
    """
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


RUNNER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_bisect", "runner.py")
IMPORTS_VARIABLE = "CUDAGUARD_BISECT_IMPORTS"
JOURNAL_VARIABLE = "CUDAGUARD_BISECT_JOURNAL"
EVIDENCE = 3  # lines of what a failing child printed last
SHELL_SIGNAL = 128  # what a shell adds to the number of the signal that ended its command


class TestedProgram:
    """A program, a list of imports, or a command that makes them.

    Args:
        args: The command line.

    Attributes:
        program: What is run, as a document has it; empty for imports alone.
        shown: What it is called in messages.
        words: The script or module and its arguments; empty if there is none.
        is_module: True if the program is named as with ``python -m``.
    """

    def __init__(self, args: Namespace) -> None:
        self._shell = None if args.cmd is None else [*SHELL, args.cmd]
        self.is_module = args.program[:1] == ["-m"]
        self.words: list[str] = args.program[1:] if self.is_module else list(args.program)
        if self.words and not self.is_module:
            self.words[0] = os.path.abspath(self.words[0])
        self.program: list[str] = self._shell or args.program
        self.shown = name_of(self.program)

    def environment(self, *, is_guarded: bool) -> dict[str, str]:
        """Return the environment of the children."""
        ours = (IMPORTS_VARIABLE, JOURNAL_VARIABLE)
        environ = {name: value for name, value in os.environ.items() if name not in ours}
        environ["PYTHONFAULTHANDLER"] = "1"  # a crash then says where
        if not is_guarded:
            return {**environ, "CUDAGUARD": "off"}
        from cudaguard.tools.run.launch import guarded_environment

        environ.pop("CUDAGUARD", None)
        return guarded_environment("fix", environ)

    def command(self, *, with_program: bool) -> list[str]:
        """Return the command line of a child: the program, or the imports alone."""
        if self._shell is not None:
            return self._shell
        kind = "module" if self.is_module else "script"
        what = [kind, *self.words] if with_program else ["imports", self.first_folder()]
        return [sys.executable, RUNNER, *what]

    def named_imports(self) -> list[str]:
        """Return what the script's own import statements name, besides the standard library."""
        from cudaguard.system.source import imports_of_file

        if self.is_module:
            return []
        names = dict.fromkeys(one.module for one in imports_of_file(self.words[0]))
        return [name for name in names if origin_of(name, self.path()) != STANDARD]

    def path(self) -> list[str]:
        """Return the folders in which the program finds its modules."""
        # In front of ours is the current folder, or that of the command itself.
        rest = sys.path if getattr(sys.flags, "safe_path", False) else sys.path[1:]
        is_safe = os.environ.get("PYTHONSAFEPATH") and hasattr(sys.flags, "safe_path")
        return [*rest] if is_safe else [self.first_folder(), *rest]

    def first_folder(self) -> str:
        """Return what Python puts in front of the program's path."""
        if self.words and not self.is_module:
            return os.path.dirname(os.path.realpath(self.words[0]))
        return os.getcwd()


class Try:
    """How one child ended, and what it had noted before.

    Args:
        ended: The end of the child.
        notes: Pairs of (what, module name) from its journal.
        is_shell: True if a shell started it, which tells signals as statuses.
    """

    def __init__(self, ended: Ended, notes: list[tuple[str, str]], *, is_shell: bool) -> None:
        self.ended = ended
        self.notes = notes
        self.cannot_say = ended.status == CANNOT_SAY
        self.failure = None if self.cannot_say else _failure(ended, is_shell=is_shell)

    def outcome(self) -> str:
        """Return how it ended, in a few words."""
        if self.cannot_say:
            return "cannot say"
        return "works" if self.failure is None else failure(self.failure.to_dict())

    def imports(self) -> list[str]:
        """Return what the program asked to be imported, in its order."""
        return list(dict.fromkeys(name for what, name in self.notes if what == "import"))

    def running(self) -> str:
        """Return the import in front that had begun and not ended, or an empty string."""
        what, name = self.notes[-1] if self.notes else ("", "")
        return name if what == "start" else ""

    def evidence(self) -> list[str]:
        """Return the lines of the failing child that tell most."""
        lines = self.ended.errors.splitlines()
        ours = {n + more for n, line in enumerate(lines) if RUNNER in line for more in (0, 1)}
        told = [line.strip() for n, line in enumerate(lines) if line.strip() and n not in ours]
        for number, line in enumerate(told):
            if line.startswith("Fatal Python error"):
                # What a library said stands before, the stack of the thread that crashed behind.
                stack = [at for at in told[number:] if at.startswith('File "') and _is_telling(at)]
                return [*told[max(number - 2, 0) : number + 1], *stack[:1]]
        if self.failure is None or not self.failure.error:
            return [*told[-EVIDENCE:], *self.ended.output.splitlines()[-1:]]
        # What a library said before, and the line that raised; the error is told elsewhere.
        begin = max((n for n, line in enumerate(told) if line.startswith("Traceback")), default=0)
        raised = [line for line in told[begin + 1 :] if line.strip("^~ ")]
        if self.failure.error in raised:
            raised = raised[: raised.index(self.failure.error)]
        return [*told[max(begin - 1, 0) : begin], *raised[1 - EVIDENCE :]]


def _failure(ended: Ended, *, is_shell: bool) -> Failure | None:
    status = ended.status
    if status is None:
        return Failure("hang")
    if status < 0 or (is_shell and SHELL_SIGNAL < status < SHELL_SIGNAL + 65):
        import signal

        number = -status if status < 0 else status - SHELL_SIGNAL
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        return Failure("signal", signal=name)
    return Failure("status", status=status, error=error_of(ended.errors)) if status else None


def _is_telling(frame: str) -> bool:
    """Return True if a line of a stack is neither of Python itself nor of our runner."""
    file = frame.split('"')[1]
    inside = file.startswith(os.path.dirname(os.__file__)) and "-packages" not in file
    return not inside and not file.startswith("<frozen") and file != RUNNER


class Trials:
    """Runs children, counts them, and tells how it goes.

    Args:
        environ: The environment of the children.
        limit: Seconds for one child.
        repeats: How often an order is tried before it is called good.
        folder: A folder for journals.
    """

    def __init__(
        self, environ: Mapping[str, str], *, limit: float, repeats: int, folder: str
    ) -> None:
        self.repeats = repeats
        self.progress = Progress()
        self.runs = 0
        self.unsure = 0
        self._environ = environ
        self._limit = limit
        self._folder = folder

    def run(
        self,
        command: Sequence[str],
        names: Sequence[str],
        told: str,
        environ: Mapping[str, str] | None = None,
    ) -> Try:
        """Run one child and say how it ended."""
        self.runs += 1
        journal = os.path.join(self._folder, f"{self.runs}.txt")
        variables = {IMPORTS_VARIABLE: ",".join(names), JOURNAL_VARIABLE: journal}
        head = f"run {self.runs}: {told}"
        self.progress.running(f"{head} ...")
        ended = run_command(command, {**(environ or self._environ), **variables}, self._limit)
        tried = Try(ended, _notes(journal), is_shell=command[0] != sys.executable)
        self.progress.finished(f"{head}: {tried.outcome()}")
        return tried


def _notes(path: str) -> list[tuple[str, str]]:
    try:
        text = read_bytes(path, LARGEST).decode("utf-8", "replace")
    except OSError:  # the child ended before it could note anything
        return []
    pairs = (line.partition(" ") for line in text.split("\n") if line)
    return [(what, name) for what, _, name in pairs]


class Oracle:
    """Answers whether one order of imports fails as the program does.

    Args:
        trials: Runs the children.
        command: What to run; the imports are handed over in the environment.
        failure: The failure that is looked for.
        told: What the runs are called in the progress.
    """

    def __init__(
        self, trials: Trials, command: Sequence[str], failure: Failure, told: str = "{}"
    ) -> None:
        self._trials = trials
        self._command = tuple(command)
        self._failure = failure
        self._told = told
        self._known: dict[tuple[str, ...], str] = {}
        self.last: Try | None = None  # the last one that failed in the way looked for

    def __call__(self, names: tuple[str, ...]) -> str:
        """Try one order, as often as asked for: one failure settles it."""
        if names not in self._known:
            self._known[names] = self._try(names)
        return self._known[names]

    def knows(self, names: tuple[str, ...], tried: Try) -> None:
        """Take note of an order that has failed elsewhere."""
        self._known[names] = BAD
        self.last = tried

    def is_steady(self, answer: Answer) -> bool:
        """Return True if what fails fails again, and what works works again."""
        # Without an order of its own that fails, the program as it is must.
        failing = answer.failing if self._known.get(answer.failing) == BAD else ()
        return self._try(failing) == BAD and self._try(answer.working) == GOOD

    def _try(self, names: tuple[str, ...]) -> str:
        verdict = GOOD
        for _ in range(self._trials.repeats):
            told = self._told.format(", ".join(names) or "nothing")
            tried = self._trials.run(self._command, names, told)
            if tried.failure is not None and tried.failure.is_like(self._failure):
                self.last = tried
                return BAD
            if tried.cannot_say or tried.failure is not None:
                verdict = UNSURE
        self._trials.unsure += verdict == UNSURE
        return verdict
