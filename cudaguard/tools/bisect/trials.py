"""What `cudaguard bisect` runs in child processes, and how each of them ended."""

from __future__ import annotations

import os
import sys

from cudaguard.files import LARGEST, read_bytes
from cudaguard.system.child import run
from cudaguard.system.origins import STANDARD, origin_of
from cudaguard.tools.bisect.messages import SHELL, failure, name_of
from cudaguard.tools.bisect.search import BAD, CANNOT_SAY, GOOD, UNSURE, Failure, error_of
from cudaguard.tools.common import Progress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence

    from cudaguard.system.child import Ended
    from cudaguard.tools.bisect.search import Answer

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
        ended = run(command, {**(environ or self._environ), **variables}, self._limit)
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
