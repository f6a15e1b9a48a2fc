"""Find the smallest set and order of imports with which a program fails, and an order that works.

Runs the program, or its imports alone, again and again in child processes, without the guard and
with a time limit. A failure is a crash by a signal, a hang, or an exit status with its Python
error; runs that fail in another way do not count.
"""

from __future__ import annotations

import os
import shlex
import sys
from time import monotonic
from typing import NamedTuple
from zipfile import is_zipfile

from cudaguard.core.findings import counted, listed
from cudaguard.core.rule_check import rules_from_tables, toml_text
from cudaguard.files import text_in, write_text
from cudaguard.model import TYPE_CHECKING
from cudaguard.system import LOCAL, STANDARD
from cudaguard.system.child import run_command, telling_lines
from cudaguard.system.packages import origin_of, packages_distributions
from cudaguard.system.processes import FAULT_SIGNALS
from cudaguard.system.source import imports_of_file
from cudaguard.tools import common
from cudaguard.tools.bisect import search
from cudaguard.tools.bisect.search import BAD, GOOD, UNSURE
from cudaguard.tools.run import launch

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from cudaguard.files.layout import Page
    from cudaguard.system.child import Failure
    from cudaguard.tools.bisect.search import Answer, Names

_TIME_LIMIT = 300.0  # seconds for one run
STATUS = {"works": common.OK, "unexplained": common.CANNOT_SAY, "by-chance": common.CANNOT_SAY}


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.usage = (
        "cudaguard bisect [OPTION ...] SCRIPT [ARG ...]\n"
        "       cudaguard bisect [OPTION ...] -m MODULE [ARG ...]\n"
        "       cudaguard bisect [OPTION ...] --imports A,B,C"
    )
    parser.add_argument(
        "--imports", metavar="A,B,C", help="the imports to try, in the order that fails"
    )
    parser.add_argument(
        "--timeout", type=launch.seconds, default=_TIME_LIMIT, metavar="S",
        help=f"seconds after which one run is taken for a hang (default: {_TIME_LIMIT:.0f})",
    )  # fmt: skip
    parser.add_argument(
        "-n", dest="repeats", type=int, default=1, metavar="N",
        help="runs of an order, all of which must work for it to count (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "-o", dest="outputs", action="append", default=[], metavar="FILE",
        help="also write a file that is not there yet: .toml the rule, anything else all as JSON; "
        "may be given several times",
    )  # fmt: skip
    common.add_with_arguments(parser)
    common.add_verbose(parser, config=True)
    parser.add_argument("--format", choices=common.FORMATS, default="text", help="default: text")


def execute(args: Namespace) -> int:
    """Search, print what was found, and return the exit status."""
    args.program = args.program[args.program[:1] == ["--"] :]
    if problem := _problem(args):
        raise common.UsageError(problem)
    import signal
    import tempfile
    from contextlib import closing

    # So that a supervisor or a terminal that ends us does not leave our children behind.
    for ending in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, ending, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # by nohup
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    with closing(common.Scratch("bisect", tempfile.gettempdir())) as scratch:
        study = Study(args, scratch.folder)
        study.search()
    document = study.document()
    for_others = common.shareable(study.document(with_arguments=args.with_arguments))
    for path in args.outputs:
        if not path.endswith(".toml"):
            common.save("bisect", path, f"{common.json_text(for_others)}\n", os.O_CREAT | os.O_EXCL)
        elif document["rule"] is not None:
            common.save("bisect", path, for_others["rule"]["toml"], os.O_CREAT | os.O_EXCL)
        else:
            common.note("bisect", f"{path} is not written: there is no rule to write")
    text = common.laid_out(document, write, sys.stdout, verbose=args.verbose)
    common.show(common.json_text(for_others) if args.format == "json" else text)
    if document["guard"] and document["guard"]["rules"]:
        return common.FOUND  # by a rule, if not by an order
    return STATUS.get(document["verdict"], common.FOUND)


def _problem(args: Namespace) -> str:
    """Return what is wrong with the arguments, or an empty string."""
    if args.imports is None and not args.program:
        return "expected a script, -m MODULE, or --imports A,B,C"
    if args.imports is not None and args.program:
        return "expected a program or --imports, not both; a program's imports are found by running"
    names = args.imports.split(",") if args.imports is not None else ()
    if not all(part.isidentifier() for name in names for part in name.strip().split(".")):
        return f"--imports: got {args.imports!r}, expected module names, as in decord,torch,cv2"
    if args.program == ["-m"]:
        return "-m is followed by nothing"
    if args.program and args.program[0] != "-m" and not os.path.exists(args.program[0]):
        return f"{args.program[0]}: there is no such file (command: -m MODULE; put code in a file)"
    if args.repeats < 1:
        return "-n must be greater than 0"
    for path in args.outputs:
        if os.path.lexists(path):
            return f"-o {path}: the file is there already, and is left alone; give another name"
        if not os.path.isdir(os.path.dirname(path) or "."):
            return f"-o {path}: there is no such folder"
    return ""


# --- the report -----------------------------------------------------------------------------------

LONGEST_LIST = 8  # modules named in one sentence
_INDENT = 2
_LABEL = 9  # columns of a label
_UNEXPLAINED = ("unexplained", "together")  # verdicts without an order that works


def verdict(document: Mapping[str, Any]) -> str:
    """Return what was found, in one sentence."""
    name = " ".join(document["program"]) or "Python"
    verdict = document["verdict"]
    if verdict == "works":
        return f"{name} does not fail here: there is nothing to look for."
    fails = f"{name} {failure_words(**document['failure'])}"
    first, then, failing = (_listed(document[key]) for key in ("first", "then", "failing"))
    if verdict == "order" and then:
        return f"{fails} when {then} {_is(document['then'])} imported before {first}."
    if verdict in ("order", "needs"):
        place = f"before {then}" if then else "first of all"
        return f"{fails} unless {first} {_is(document['first'])} imported {place}."
    if verdict == "together" and len(document["failing"]) == 1:
        return (
            f"{fails} when {failing} is imported, whatever is imported first. Import order is not "
            "the cause: reinstall or rebuild it."
        )
    if verdict == "together":
        return f"{fails} when {failing} are imported, in whatever order."
    if verdict == "by-chance":
        return f"{fails}, but one order has both failed and worked: it fails by chance. Try -n 5."
    if not document["imports"]:
        return f"{fails}, and makes no imports whose order could be the cause."
    return f"{fails} in every order that was tried: no order of imports cures it."


def write(document: Mapping[str, Any], page: Page) -> None:
    """Write the report: the verdict, what shows it, the next step."""
    page.add(verdict(document), style="green" if document["verdict"] == "works" else "bold")
    page.blank()
    rule = document["rule"]
    versions = (f"{name} {version}" for name, version in document["versions"].items())
    lists = (("fails", document["failing"]), ("works", document["working"]), ("with", versions))
    said, more = page.cut(document["evidence"])
    lines = [(label, ", ".join(names), "") for label, names in lists]
    lines += [("" if at else "because", "", line) for at, line in enumerate(said)]  # verbatim
    found = [line for line in (*lines, ("", more, "")) if line[1] or line[2]]
    for label, text, whole in found:
        lead = f"{f'{label}:' if label else '':<{_LABEL}}"
        page.add(text, _INDENT, lead=lead, whole=whole, hanging=_LABEL)
    if found:
        page.blank()
    for remark in _remarks(document):
        page.add(remark)
    if rule:
        page.blank()
        page.labeled("fix", "put this rule into a cudaguard.toml:", 0)
        page.blank()
        page.block(rule["toml"].rstrip(), 2 * _INDENT)
    if document["command"]:
        page.blank()
        page.labeled("run", document["command"], 0)


def _remarks(document: Mapping[str, Any]) -> Iterable[str]:
    runs = f"{counted(document['runs'], 'runs')} in {document['seconds']:.1f} s"
    if document["unsure"]:
        runs += f", {document['unsure']} of which failed in another way"
    yield f"{runs}."
    name = " ".join(document["program"])
    if document["working"] and document["program_works"] is False:
        yield (
            f"With that order {name} does not fail in this way, but does not end well either: "
            "bisect again once the order is changed."
        )
    elif document["working"] and document["program_works"]:
        yield f"With that order in front, {name} works."
    guard, rule = document["guard"], document["rule"]
    if guard and guard["cures"] and guard["rules"]:
        yield (
            f"The guard cures it already: {_listed(guard['rules'])}. Start the program with "
            "`cudaguard run`, or set CUDAGUARD=fix."
            + (" The rule below is not needed then." if rule else "")
        )
    elif guard and guard["cures"]:
        yield "It does not fail under the guard (`cudaguard run`), though no rule says why."
    elif guard:
        yield "It fails under the guard as well: no rule that is in force cures it."
    if rule and rule["cures"]:
        yield "The rule below cures it: it does not fail under the guard with that rule."
    elif rule and rule["cures"] is False:
        yield "The rule below was tried, and does not cure it: change the order in the program."


def next_command(document: Mapping[str, Any], limit: float) -> str:
    """Return the command to run next; empty if there is none. A hang is what takes `limit` s."""
    program = shlex.join(document["program"])
    what = program or f"--imports {','.join(document['imports'])}"
    if document["verdict"] == "by-chance":
        return f"cudaguard bisect -n 5 {what}"
    if document["guard"] and document["guard"]["cures"]:
        return f"cudaguard run {program}" if program else "cudaguard doctor"
    if document["rule"] and document["rule"]["cures"]:
        return f"cudaguard bisect -o cudaguard.toml {what}"
    is_known = document["verdict"] not in _UNEXPLAINED or len(document["failing"]) == 1
    if not program or is_known:
        return ""
    if document["failure"]["kind"] == "hang":  # with a limit, it says where and for what it waits
        return f"cudaguard run --timeout {max(limit, 1):.0f} {program}"
    if document["failure"]["kind"] == "signal":  # `run` knows no more, and would ask to bisect
        return launch.debugger(document["program"])
    return f"cudaguard run {program}"


def rule_of(document: Mapping[str, Any], day: str) -> tuple[str, str]:
    """Return the id of the rule that keeps the order, and the text of its configuration file."""
    first, then = document["first"], document["then"]
    shown = "-".join((*first, "before", *then)).upper()
    id = "".join(sign if sign.isalnum() else "-" for sign in f"LOCAL-{shown}")
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    found = {**document, "program": common.program_alone(document["program"])}
    fields = {
        "id": id,
        "watch": list(then),
        "needs": list(first),
        "title": f"{_listed(first)} before {_listed(then)}",
        "why": f"Found by cudaguard bisect: {verdict(found)}",
        "verified": f"{day}: {versions}" if versions else day,
    }
    lines = (f"{key} = {toml_text(value)}\n" for key, value in fields.items())
    return id, "[[rules]]\n" + "".join(lines)


def _listed(names: Sequence[str]) -> str:
    if len(names) > LONGEST_LIST:
        names = [*names[:LONGEST_LIST], f"{len(names) - LONGEST_LIST} more"]
    return listed(names) if names else ""


def _is(names: Sequence[str]) -> str:
    return "are" if len(names) > 1 else "is"


# --- What is run, and how it failed ---------------------------------------------------------------

RUNNER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_bisect", "runner.py")


def is_like(first: Failure, second: Failure) -> bool:
    """Return True if that is the same failure, as far as can be told from outside."""
    if first.kind == second.kind == "signal":  # damaged memory ends in one or another, by chance
        return first == second or {first.text, second.text}.issubset(FAULT_SIGNALS)
    return first.kind == second.kind and _essence(first.text) == _essence(second.text)


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
        self.is_archive = False  # a folder or zip file with a __main__
        if self.words and not self.is_module:
            self.words[0] = os.path.abspath(self.words[0])
            self.is_archive = os.path.isdir(self.words[0]) or is_zipfile(self.words[0])
        self.shown = " ".join(program)

    def command(self, *, with_program: bool) -> list[str]:
        """Return the command line of a child: the program, or the imports alone."""
        kind = "module" if self.is_module else "archive" if self.is_archive else "script"
        what = [kind if with_program else "imports", self._first_folder()]
        return [sys.executable, RUNNER, *what, *(self.words if with_program else ())]

    def path(self) -> list[str]:
        """Return the folders in which the program finds its modules."""
        # In front of ours is the current folder, or that of the command itself.
        rest = sys.path if getattr(sys.flags, "safe_path", False) else sys.path[1:]
        is_safe = os.environ.get("PYTHONSAFEPATH") and hasattr(sys.flags, "safe_path")
        return [*rest] if is_safe else [self._first_folder(), *rest]

    def _first_folder(self) -> str:
        """Return what Python puts in front of the program's path."""
        if self.is_archive:
            return self.words[0]
        is_script = self.words and not self.is_module
        return os.path.dirname(os.path.realpath(self.words[0])) if is_script else os.getcwd()


class Try(NamedTuple):
    """End of one child, with what it had noted before."""

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


class Oracle:
    """Answers whether one order of imports fails as the program does in the run `seen`.

    `names` is the order that failed there; None if that was another command.
    """

    def __init__(
        self,
        study: Study,
        command: Sequence[str],
        seen: Try,
        names: Names | None,
        title: str = "{}",
    ) -> None:
        self._study = study
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
        for _ in range(self._study.repeats):
            title = self._title.format(", ".join(names) or "nothing")
            tried = self._study.run(self._command, names, title)
            if is_like(tried.failure, self._failure):
                self.last = tried
                return BAD
            if tried.failure.kind:
                verdict = UNSURE
        self._study.unsure += verdict == UNSURE
        return verdict


# --- the course: see it fail, search, prove what was found ----------------------------------------

OURS = "cudaguard"  # putting it elsewhere would show nothing: the guard is off in the runs


class Study:
    """One search."""

    def __init__(self, args: Namespace, folder: str) -> None:
        self._args = args
        self._folder = folder
        self._tested = TestedProgram(args.program)
        self.repeats = args.repeats
        self.progress = common.Progress()
        self.runs = self.unsure = 0
        self._found: dict[str, Any] = {
            "program": list(args.program),
            "verdict": "works",
            "versions": {},
            **{key: [] for key in ("imports", "failing", "working", "first", "then", "evidence")},
            **dict.fromkeys(("failure", "program_works", "guard", "rule")),
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
                    oracle = Oracle(self, command, seen, names)
                    self._conclude(search.among(names, oracle, seen.begun(names)), oracle)
        finally:
            self.progress.clear()
        self._found["runs"] = self.runs
        self._found["unsure"] = self.unsure
        self._found["seconds"] = round(monotonic() - started, 1)

    def document(self, *, with_arguments: bool = True) -> dict[str, Any]:
        """Return what was found; without arguments, the program alone, and not what it printed."""
        found = self._found
        if not with_arguments:
            found = {**found, "program": common.program_alone(found["program"]), "evidence": []}
        return {
            "tool": "bisect",
            "what": verdict(found),
            **found,
            "command": next_command(found, self._args.timeout),
        }

    # --- what is run ------------------------------------------------------------------------------

    def _from_program(self) -> None:
        command = self._tested.command(with_program=True)
        if (seen := self._see_it_fail(command, (), self._tested.shown)) is None:
            return
        program = self._tested.words[0] if self._tested.is_module else ""
        path = self._tested.path()
        origins = {
            name: origin_of(name, path)
            for name in seen.imports()
            if name not in (program, "__main__") and name.partition(".")[0] != OURS
        }
        every = tuple(name for name, origin in origins.items() if origin != STANDARD)
        # Without the user's own modules: imports that these make have been noted themselves.
        installed = tuple(name for name in every if origins[name] != LOCAL)
        self._found["imports"] = list(installed or every)
        # What the script's own import statements name.
        said = () if self._tested.is_module else imports_of_file(self._tested.words[0])
        names_said = dict.fromkeys(statement.module for statement in said)
        named = [name for name in names_said if origin_of(name, path) != STANDARD]
        alone = Oracle(self, self._tested.command(with_program=False), seen, None)
        behind = Oracle(self, command, seen, (), f"{{}}, then {self._tested.shown}")
        orders = [names for names in dict.fromkeys((installed, every)) if names]
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
            if (answer := search.in_front(names, behind)) is not None:
                self._conclude(answer, behind, behind)
                return
        self._found["evidence"] = list(behind.last.evidence)
        self._ask_the_guard()

    def _see_it_fail(self, command: list[str], names: Names, title: str) -> Try | None:
        """Run it until it fails, as often as asked for; return that run."""
        for _ in range(self.repeats):
            tried = self.run(command, names, title)
            if tried.failure.kind:
                self._found["verdict"] = "unexplained"
                self._found["failure"] = tried.failure._asdict()
                return tried
        return None

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
            environ["CUDAGUARD"] = "fix"
            environ = {**launch.guarded_environment("fix", environ), **guard}
        environ["CUDAGUARD_BISECT_IMPORTS"] = ",".join(names)
        environ["CUDAGUARD_BISECT_JOURNAL"] = journal
        head = f"run {self.runs}: {title}"
        self.progress.running(f"{head} ...")
        ended = run_command(command, environ, self._args.timeout)
        failure = ended.failure()
        self.progress.finished(f"{head}: {failure_words(*failure)}")
        pairs = (line.partition(" ") for line in text_in(journal).split("\n") if line)
        notes = [(what, name) for what, _, name in pairs]
        return Try(failure, notes, telling_lines(ended.errors, RUNNER))

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
        fails_alone = answer.failing == answer.then  # without what must come first
        found["verdict"] = "needs" if fails_alone else "order" if answer.working else "together"
        tops = packages_distributions((*answer.failing, *answer.working))
        found["versions"] = dict(sorted(tops.values()))
        if answer.working and behind is not None:
            found["program_works"] = behind(answer.working) == GOOD
        self._ask_the_guard()
        if answer.working and answer.then:
            self._write_rule()

    def _ask_the_guard(self) -> None:
        """Find out whether the guard cures it as it is, and by which rules."""
        from cudaguard.tools.run.record import read_events

        journal = os.path.join(self._folder, "guard.jsonl")
        cures = self._works_guarded("under the guard", CUDAGUARD_JOURNAL=journal)
        repairs = filter(None, (line.repaired() for line in read_events(journal)))
        rules = dict.fromkeys(done.rule for done in repairs if done.rule)
        self._found["guard"] = {"cures": cures, "rules": [*rules]}

    def _write_rule(self) -> None:
        """Write the rule down, read it as a user's file is read, and try it."""
        from datetime import date

        from cudaguard.config import read_file
        from cudaguard.errors import RuleError

        id, text = rule_of(self._found, date.today().isoformat())
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

    def _works_guarded(self, title: str, **variables: str) -> bool:
        """Return True if it works under the guard, as often as asked for."""
        names = () if self._tested.words else tuple(self._found["imports"])
        command = self._tested.command(with_program=bool(self._tested.words))
        title = f"{self._tested.shown or ', '.join(names)} {title}"
        return not any(
            self.run(command, names, title, variables).failure.kind for _ in range(self.repeats)
        )
