"""Deaths of processes by the journal: which process, doing what, and which rules explain it.

A launcher (torchrun, ``accelerate launch``, a shell script, a process pool) ends because a process
that it had started has died: that one is looked at, the first of several. Pure: the journal, the
dumps of ``faulthandler`` and rules in, conclusions out.
"""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from itertools import groupby
from typing import NamedTuple

from cudaguard.core.rule import INSTALL, actions_of, install_call, values_of
from cudaguard.files import matches, text_in
from cudaguard.model import TYPE_CHECKING
from cudaguard.system.processes import CRASHES_OF_WINDOWS, FAULT_SIGNALS, SIGKILL, signal_name
from cudaguard.tools.run.launch import program_of
from cudaguard.tools.run.record import OVER

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence
    from typing import Any

    from cudaguard.core.findings import Finding
    from cudaguard.core.reports import Repaired
    from cudaguard.core.rule import Rule
    from cudaguard.files.layout import Page
    from cudaguard.tools.run.launch import Program
    from cudaguard.tools.run.record import FaultDump, Frames, Line, Raised

    Frame = dict[str, Any]

# What other actions are about (arrays, graphs, builds, defaults) does not kill.
_DEADLY = ("load_local", "preload", "replace_module")
# Errors that only say that another process has ended.
_OF_OTHERS = (
    *("BrokenProcessPool", "CalledProcessError", "ChildFailedError", "ProcessExitedException"),
    *("ProcessRaisedException", "TerminatedWorkerError", "WorkerCrashedError", "WorkerLostError"),
    *("EOFError", "BrokenPipeError", "ConnectionResetError"),  # of the pipe or socket to it
)
# Of these nobody dies who was asked to end; SIGKILL is among them as it can be no wish of ours.
CRASHES = frozenset(CRASHES_OF_WINDOWS).union(
    getattr(signal, name) for name in (*FAULT_SIGNALS, "SIGKILL") if hasattr(signal, name)
)
FAULT_NUMBERS = CRASHES - {SIGKILL}
AT_EXIT = " at exit"  # when the program's own code had ended


# --- which process ------------------------------------------------------------------


class Process(NamedTuple):
    """One Python process below ``cudaguard run``, as it is known from what it wrote."""

    pid: int  # its id
    program: tuple[str, ...] = ()  # the words that followed the interpreter
    rank: int | None = None  # its place among the processes of a job; None if it has none
    ranks: int = 0  # how many there are; 0 if that is not known
    error: Raised | None = None  # the uncaught error that has ended it
    # when it wrote that down, or its end was seen by who waited for it; 0.0 if neither was
    died: float = 0.0
    signal: int = 0  # which has killed it; 0 if none has, or if nobody saw it
    asked: frozenset[int] = frozenset()  # the signals that processes of this run have sent to it
    parent: int = 0  # which has started it; 0 if that is not known
    left: int = 0  # native threads of its parent that it has not, as it is a fork
    has_cuda: bool = False  # True if it has initialized CUDA
    inherits: bool = False  # True for a fork of one that had: it cannot use CUDA
    status: int = 0  # exit status of such a fork, which may have caught that error (gunicorn)

    @property
    def how(self) -> str:
        """How it died, as in ``crashed (SIGSEGV)``; empty if it has not, or was asked to end."""
        if self.signal:
            # A library may end a fork that lacks its threads by SIGTERM (numba's OpenMP).
            is_crash = self.signal in CRASHES or (self.signal == signal.SIGTERM and self.left > 0)
            return died_of(self.signal) if is_crash and self.signal not in self.asked else ""
        what = self.error.text.partition(":")[0] if self.error else f"status {self.status}"
        return f"ended with {what}" if self.error or self.status else ""

    @property
    def lacks(self) -> str:
        """What a fork lacks of its parent, and what follows: not SIGKILL; empty for nothing."""
        threads = f"forked without the parent's native threads ({self.left}): what needs one"
        then = "(OpenMP, polars, JAX) hangs or dies; start workers with spawn or forkserver"
        return f"{threads} {then}" if self.left > 0 and self.signal != SIGKILL else ""


def died_of(number: int) -> str:
    """Return how a signal ends a process."""
    return f"{'crashed' if number in FAULT_NUMBERS else 'was killed'} ({signal_name(number)})"


def add_event(found: dict[int, Process], line: Line) -> None:
    """Add to the processes what one line of the journal says of them."""
    known = found.get(line.pid) or Process(line.pid)
    if line.kind == "start":  # perhaps by exec, another program than before
        starter = line.number("parent")
        parent = found.get(starter) if line.is_fork else None
        # Whoever started it may have killed it before it has written a line.
        asked = known.asked if known == Process(line.pid, asked=known.asked) else frozenset()
        known = Process(line.pid, asked=asked, parent=starter)
        if parent:
            known = known._replace(program=parent.program, left=line.number("left"))
            known = known._replace(inherits=parent.has_cuda or parent.inherits)
        else:
            words, ranks = line.texts("program"), line.number("ranks")
            known = known._replace(program=words, rank=line.rank, ranks=ranks)
    elif line.kind == "error":
        known = known._replace(error=line.raised(), died=line.time)
    elif line.kind == "cuda" and line.text("kind") == "initialized":
        known = known._replace(has_cuda=True)
    elif line.kind == "end":  # its own code: to be killed after that is no death to tell
        known = known._replace(asked=known.asked | {SIGKILL})
    found[line.pid] = known
    if line.other and (line.other in found or line.kind == "kill"):
        known, number = found.get(line.other) or Process(line.other), line.number("signal")
        if line.kind == "child":
            is_kill = number == SIGKILL and line.pid != known.parent
            if (is_kill or number == signal.SIGTERM) and _is_aftermath(known, found):
                known = known._replace(asked=known.asked | {number})
            is_silent = known.inherits and known.error is None
            known = known._replace(signal=number, status=is_silent * line.number("status"))
            known = known._replace(died=known.died or (line.time if known.how else 0.0))
        elif line.other != line.pid and not known.died:  # else it was no wish of its parent's
            known = known._replace(asked=known.asked | {number})
        found[line.other] = known


def _is_aftermath(process: Process, found: Mapping[int, Process]) -> bool:
    """Return True if a parent that is to end has ended a process, or as another rank has died."""
    parent = found.get(process.parent, process)
    ranks = [one for one in found.values() if one.parent == process.parent and one.rank is not None]
    is_later = process in ranks and any(process.signal and process.how for process in ranks)
    return not process.died and (is_later or bool(parent.asked))


def processes_of(
    lines: Iterable[Line], faults: Mapping[int, Sequence[FaultDump]]
) -> dict[int, Process]:
    """Return the processes in the order in which they were heard of."""
    found: dict[int, Process] = {}
    for line in lines:
        add_event(found, line)
    for pid, dumps in faults.items():
        fatal = [dump for dump in dumps if dump.what]
        if fatal:
            known = found.get(pid) or Process(pid)
            meant = fatal[-1].what.replace("-", " ")
            # On Windows it may go on: it is written before the program gets to handle the fault.
            signals = FAULT_NUMBERS.difference(CRASHES_OF_WINDOWS)
            number = next((number for number in signals if signal.strsignal(number) == meant), 0)
            found[pid] = known._replace(died=fatal[-1].time, signal=known.signal or number)
    return found


def explaining(processes: Mapping[int, Process], own: int, status: int) -> Process:
    """Return the process that explains why the program, with the id `own`, has ended as it did."""
    program = processes.get(own, Process(own))
    dead = [one for one in processes.values() if one.pid != own and one.died and one.how]
    others = [one for one in dead if one.status in (0, status)]  # which it may have taken over
    if program.error is not None and not _is_of_others(program.error, others):
        return program
    dead = [process for process in others if process.rank is not None]
    for process in () if dead else others:
        error = process.error  # is there more to say of it than the process has said?
        is_known = error is not None and error.finding is not None and not error.is_said
        if error is None or is_known or program.error is not None:
            dead.append(process)
    return min(dead, key=lambda process: process.died, default=program)


def _is_of_others(error: Raised, dead: Iterable[Process]) -> bool:
    """Return True if an error only says that another process has ended: by its kind, or number."""
    if error.text.partition(":")[0].rpartition(".")[2] in _OF_OTHERS:
        return True
    return not {str(process.pid) for process in dead}.isdisjoint(re.findall(r"\d+", error.text))


# --- what it did --------------------------------------------------------------------


class Step(NamedTuple):
    """An import or a load that had begun and not ended."""

    kind: str  # ``import`` or ``load``
    name: str  # the module; for a library loaded by ctypes, its file
    file: str  # the library; empty for an import of Python code
    where: str  # ``file:line`` of the code that asked for it

    @property
    def what(self) -> str:
        """The step in words, as in ``importing numpy``."""
        if self.name == self.file:
            return f"loading {os.path.basename(self.file)}"
        return f"importing {self.name}"


class NotFound(NamedTuple):
    """A library that ctypes was asked for in vain, so that the program went on without it."""

    name: str  # what the loader did not find: the library, or one that it needs
    where: str  # file:line of the code that asked for it
    installed: str = ""  # a copy of it where the loader does not look; empty for none


class Story(NamedTuple):
    """One process, from its journal."""

    mode: str  # the mode of the guard
    running: tuple[Step, ...]  # what was going on, outermost first
    # watched modules in the order of their imports, and packages of which an extension was loaded
    imported: tuple[str, ...]
    mapped: tuple[str, ...]  # libraries that were mapped while the guard looked, oldest first
    # libraries that ctypes did not find, nor another version of them later; not what the error says
    # itself
    not_found: tuple[NotFound, ...]
    repairs: tuple[Repaired, ...]  # what the guard had repaired
    findings: tuple[Finding, ...]  # what it had found
    error: Raised | None  # the error that ended the program, if one did
    # what was seen of it last, as in ``at exit, after importing a, at a.py:1``; may be empty
    last: str = ""
    forked: str = ""  # that it was forked from a process that used CUDA, and where


def lines_of_process(lines: Sequence[Line], pid: int, deepest: int = 5) -> list[Line]:
    """Return what a process has noted; of a fork, after what its parent had until then."""
    found: list[Line] = []
    for number, line in enumerate(lines):
        if line.pid != pid:
            continue
        if line.is_fork and line.number("parent") and deepest:
            found = lines_of_process(lines[:number], line.number("parent"), deepest - 1)
        found.append(line)
    return found


def story_of(lines: Sequence[Line], pid: int, thread: int = 0) -> Story:
    """Return what a process did last, in the last of the programs that it was.

    What others were importing than the `thread` that died, if that is known, was not it.
    """
    mode = last = place = cuda = forked = ""
    error: Raised | None = None
    stacks: dict[int, list[tuple[int, Step]]] = {}
    imported: dict[str, None] = {}
    mapped: list[str] = []
    lacking: dict[str, NotFound] = {}
    repairs: list[Repaired] = []
    findings: list[Finding] = []
    for number, line in enumerate(lines_of_process(lines, pid)):
        kind, stack = line.kind, stacks.setdefault(line.thread, [])
        if line.is_fork:
            stacks, forked = {line.thread: stack}, cuda  # it has no other thread
            if line.where:
                last, place = f" after it was forked, at {shown_place(line.where)}", line.where
        elif kind == "start":
            mode = last = place = cuda = forked = ""
            error = None
            for found in (stacks, imported, mapped, lacking, repairs, findings):
                found.clear()
        elif kind in ("import", "mapping"):
            imported.setdefault(line.module if kind == "import" else line.module.partition(".")[0])
            kind = "load" if kind == "mapping" else kind
            step = Step(kind, line.module or line.file, line.file, line.where)
            # What that imports in turn is no place of the program's, nor what packages do later.
            if not stack and (_is_own(line.where) or not _is_own(place)) and line.where:
                last, place = f" after {step.what}, at {shown_place(line.where)}", line.where
            stack.append((number, step))
        elif kind in OVER:
            for index, (_, step) in reversed([*enumerate(stack)]):
                if step.kind in OVER[kind] and line.name in (step.name, step.file):
                    del stack[index:]  # the innermost of that name, and what it has left open
                    break
            if missing := line.text("missing"):
                lacking.setdefault(_stem(missing), NotFound(missing, line.where))
            elif kind != "failed":
                lacking.pop(_stem(line.name), None)
        elif kind == "mapped":
            mapped.append(line.file)
            lacking.pop(_stem(line.file), None)
        elif kind == "cuda" and line.text("kind") == "initialized":
            cuda = "; forked after CUDA was initialized"
            cuda += line.where and f", at {shown_place(line.where)}"
        elif kind == "end":
            last = f"{AT_EXIT}{last and ','}{last}"
        elif kind in ("install", "uninstall"):
            mode = line.name
        elif kind == "error":
            error = line.raised()
        elif kind == "finding":
            findings.append(line.finding())
        repairs += filter(None, [line.repaired()])
    open_steps = sorted(
        step for owner, stack in stacks.items() if thread in (0, owner) for step in stack
    )
    return Story(
        mode,
        tuple(step for _, step in open_steps),
        tuple(name for name in imported if name not in ("", "ctypes")),  # watched for its loads
        tuple(mapped),
        tuple(lib for lib in lacking.values() if error is None or lib.name not in error.text),
        tuple(repairs),
        tuple(findings),
        error,
        last,
        forked,
    )


def last_place(story: Story, frames: Frames) -> str:
    """Return where a process was and in what, as in ``while importing crashy, at inner.py:1``."""
    outer = [frame for frame in frames if not _kind_of(frame[0])]
    where = f", at {shown_place(f'{outer[0][0]}:{outer[0][1]}')}" if outer else ""
    if story.running:
        step = story.running[-1]
        if step.kind == "load" or not where:
            where = f", at {shown_place(step.where)}" if step.where else ""
        return f" while {step.what}{where}{story.forked}"
    if not outer:
        return story.last + story.forked
    file, _, function = outer[0]
    behind = frames[list(frames).index(outer[0]) + 1 :][:1]
    if function == "<module>" and behind and behind[0][0].startswith("<frozen importlib"):
        name = file.replace(f"{os.sep}__init__.py", "").rpartition(os.sep)[2]
        return f" while importing {name.partition('.')[0]}{where}{story.forked}"
    return (where[1:] if function == "<module>" else f" in {function}{where}") + story.forked


def _stem(file: str) -> str:
    """Return the name of a library without folder and version."""
    return file.rpartition("/")[2].partition(".so")[0]


# --- rules --------------------------------------------------------------------------


class Fit(NamedTuple):
    """A rule that may explain it."""

    rule: Rule  # the rule
    is_certain: bool  # true if it is about what was running, by name
    libraries: tuple[str, ...]  # those mapped into the process that the rule says are global
    call: str  # what has the guard repair it, as in ``cudaguard.install()``; empty: nothing does


def fitting(rules: Iterable[Rule], story: Story, cured: Container[str] = ()) -> list[Fit]:
    """Return the rules that may explain why a process died, whether they apply here or not.

    `cured` are the ids of those that the guard was to repair in that process.
    """
    # The package in whose import or load the process died, or that came last.
    running = [step.name for step in story.running if step.name != step.file]
    suspect = "".join(running[-1:] or story.imported[-1:]).partition(".")[0]
    found: list[Fit] = []
    for rule in rules:
        watched = [name for name in rule.watch if name in story.imported]
        call = install_call(rule)
        is_deadly = rule.needs or not call or actions_of(rule, *_DEADLY)
        acts = any(done.rule == rule.id for done in story.repairs)
        if not watched or not is_deadly or acts or rule.id in cured:
            continue
        names = (*rule.watch, *rule.needs, *rule.when.get("dists", {}))
        is_certain = suspect in {name.partition(".")[0] for name in names}
        is_other = watched[0].partition(".")[0] != suspect
        if is_certain or (is_other and actions_of(rule, "load_local")):
            patterns = values_of(rule, "load_local")
            files = [file for file in story.mapped if matches(file.rpartition("/")[2], patterns)]
            found.append(Fit(rule, is_certain, tuple(files), call))
    return found


def likeliest(fits: Iterable[Fit]) -> tuple[Fit, ...]:
    """Return the rules that explain it best, those that a plain `install` repairs first."""
    found = sorted(fits, key=lambda fit: (not fit.is_certain, fit.call != INSTALL, fit.rule.id))
    # One rule per module: others are the same fault at other moments.
    best: dict[tuple[str, ...], Fit] = {}
    for fit in found:
        best.setdefault(fit.rule.watch, fit)
    return tuple([fit for fit in best.values() if fit.is_certain] or best.values())


# --- Python stacks of the program: its sources, and the words for them ---------------------------
# All threads, the standard library folded, equal stacks once.

_LIBRARY = re.compile(r"/lib\w*/(?:python|pypy)3[.\d]*t?/|\\Lib\\")
_IN_PACKAGES = re.compile(r".*-packages[/\\]")
_GUARD = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
STACK = "Python stack"
_INDENT = 2


class Sources:
    """Frames as the report has them; those of the program's own files with their lines.

    No line of another file is shown: a process that has given up its rights can still write to
    what faulthandler has open, and name a file there that it may not read. The scripts that other
    processes of the run were started with are the program's too.

    The frames come innermost first; the outermost that can be that of ``-m MODULE``, by its name,
    has the file of the module, which is not imported to find it.
    """

    def __init__(
        self,
        program: Program,
        frames: Frames,
        processes: Iterable[Process] = (),
        *,
        shows_lines: bool = True,
    ) -> None:
        self._program = program
        self.script = program.script
        if program.words[:1] == ("-m",):
            name = "".join(program.words[1:2]).replace(".", os.sep)
            ends = f"{os.sep}{name}.py", f"{os.sep}{name}{os.sep}__main__.py"
            outer = [file for file, _, _ in frames if file.endswith(ends)]
            self.script = "".join(outer[-1:])
        started = {process.program for process in processes}
        scripts = (self.script, *(program_of(words).script for words in started))
        self._own = {os.path.abspath(script) for script in scripts if script and shows_lines}
        self._lines: dict[str, list[str]] = {}
        if shows_lines and program.words[:1] == ("-c",):
            self._lines["<string>"] = program.words[1].splitlines()

    def frames(self, frames: Frames) -> list[dict[str, Any]]:
        """Return frames as the report has them."""
        is_code = self._program.words[:1] == ("-c",)
        script = os.path.abspath(self.script)
        found = []
        for file, line, function in frames:
            lines = self._lines_of(file)[line - 1 : line] if line > 0 else []
            is_own = is_code and file == "<string>"
            if self.script:
                is_own = os.path.abspath(file) == script
            place = {"file": file, "line": line, "function": function}
            found.append({**place, "source": "".join(lines).strip(), "is_program": is_own})
        return found

    def threads(self, fault: FaultDump) -> list[dict[str, Any]]:
        """Return the threads beside the one concerned as the report has them."""
        return [{"name": other.name, "stack": self.frames(other.frames)} for other in fault.others]

    def _lines_of(self, file: str) -> list[str]:
        """Return the lines of a source of the program's, none if it cannot be read."""
        if file not in self._lines:
            is_own = os.path.abspath(file) in self._own
            self._lines[file] = text_in(file).splitlines() if is_own else []
        return self._lines[file]


# --- words --------------------------------------------------------------------------


def short(file: str) -> str:
    """Return a path without the folder that all packages, or Python's own modules, are in."""
    found = _IN_PACKAGES.match(file) or _LIBRARY.search(file)
    return file[found.end() :] if found else file


def _is_own(where: str) -> bool:
    """Return True for a place that is in no package, and not in Python's own modules."""
    return short(where) == where != ""


def shown_place(where: str) -> str:
    """Return ``file:line`` as a headline has it: below the working directory, from there."""
    here = ""
    with suppress(OSError):  # it is gone
        here = os.getcwd() + os.sep
    return short(where[len(here) :] if where.startswith(here) else where)


def _kind_of(file: str) -> str:
    """Return ``between`` for ours and the import machinery, ``library`` for Python's, or ""."""
    if file.startswith(_GUARD):
        return "between"
    found = None if _IN_PACKAGES.match(file) else _LIBRARY.search(file)
    name = file[found.end() :] if found else file.partition("<frozen ")[2]
    if name.startswith(("importlib", "_frozen_importlib")):
        return "between"
    return "library" if name else ""


def lines_of(stack: Sequence[Frame]) -> list[str]:
    """Return a line for each frame, innermost first; frames of the standard library in one.

    Those of the import machinery and our own are left out, as Python's tracebacks do.
    """
    lines: list[str] = []
    folded = 0
    for frame in (*stack, None):
        kind = _kind_of(frame["file"]) if frame is not None else ""
        if kind == "library" and lines:
            folded += 1
        elif kind != "between":
            if folded:
                lines.append(f"({folded} frame{'s'[: folded > 1]} of the standard library)")
                folded = 0
            if frame is not None:
                source = f": {frame['source']}" if frame["source"] else ""
                where = f"{short(frame['file'])}:{frame['line']}"
                lines.append(f"{where} in {frame['function']}{source}")
    alike = [(line, len([*same])) for line, same in groupby(lines)]
    return [t for line, n in alike for t in (line, f"(the same {n - 1} more times)")[: 1 + (n > 1)]]


def add_frame(page: Page, frame: str, indent: int) -> None:
    """Add one line of a stack; its source is not broken."""
    where, colon, source = frame.partition(": ")
    page.add(f"{where}{colon.strip()}", indent, whole=source)


def add_stacks(page: Page, label: str, process: dict[str, Any]) -> None:
    """Add the frames of the thread concerned, innermost first, and those of the other threads.

    Threads with equal stacks share them.
    """
    own = lines_of(process["stack"])
    if own or label != STACK:
        page.add(f"{label}, innermost call first:" if own else label, _INDENT)
    for frame in own:
        add_frame(page, frame, 2 * _INDENT)
    alike: dict[tuple[str, ...], list[str]] = {}
    for thread in process["threads"]:
        alike.setdefault(tuple(lines_of(thread["stack"])), []).append(thread["name"])
    for frames, names in alike.items():
        known = list(dict.fromkeys(filter(None, names)))[:3]
        who = f"{len(names)} other threads" if len(names) > 1 else "another thread"
        if frames:
            page.add(f"{who} ({', '.join(known)}):" if known else f"{who}:", _INDENT)
        for frame in frames:
            add_frame(page, frame, 2 * _INDENT)


def process_name(process: Mapping[str, Any]) -> str:
    """Return what a process is called: by its rank, if it has one."""
    if process["rank"] is None:
        return f"process {process['pid']}"
    of = f" of {process['ranks']}" if process.get("ranks") else ""
    return f"rank {process['rank']}{of} (process {process['pid']})"
