"""Reports from the record why the program under ``cudaguard run`` died."""

from __future__ import annotations

import ast
import os
import re
import shlex
import sys
from collections import Counter
from functools import cache
from itertools import chain

from cudaguard import errors
from cudaguard.api import active_rules
from cudaguard.core.decide import applying
from cudaguard.core.explain import known_errors
from cudaguard.core.findings import listed
from cudaguard.core.known_errors import CERTAIN, best_in
from cudaguard.core.record import JOURNAL
from cudaguard.core.rule import repaired_by
from cudaguard.elf.library_facts import distributions_of
from cudaguard.features.symbol_scope.findings import INTERPOSED
from cudaguard.files import read_bytes, write_text
from cudaguard.files.layout import MOST, Page
from cudaguard.model import TYPE_CHECKING
from cudaguard.system import STANDARD, origin_of_file
from cudaguard.system.facts import Facts
from cudaguard.system.processes import SIGKILL, oom_kills, shell_status, signal_name
from cudaguard.system.source import imports_of_file
from cudaguard.tools.common import TIMEOUT, json_text, laid_out, say, shareable
from cudaguard.tools.run import story as stories
from cudaguard.tools.run.launch import debugger, program_of
from cudaguard.tools.run.record import faults_in, read_events

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from cudaguard.core.findings import Finding
    from cudaguard.tools.run.launch import Launch, Program
    from cudaguard.tools.run.record import FaultDump, Frames
    from cudaguard.tools.run.supervise import ProgramEnd

# --- The wording of how a program under ``cudaguard run`` has died --------------------------------
# The document is what ``--report`` writes (``schema/run.json``); the text says the same in words.

_CORE = re.compile(r"lib([a-zA-Z]{3,})[^/]*$")  # of the name of a library, as errors say it
# What a path has up to the packages; a look at the beginning of each word alone.
_IN_PACKAGES = re.compile(r"(?<!\S)([^\s/\\]*)[/\\]\S*-packages[/\\]")
_IN_ALL_STACKS = ("python", "libpython", "libc.", "ld-linux")  # libraries
# No library is missing, or it is the driver's.
_NOT_OF_FILES = ("CG715", "CG743", "CG744", "CG745", "CG747", "CG749", "CG864")
_INDENT = 2
_MOST = 1 << 23  # bytes of the record: a hundred thousand events, two seconds of reading


def guard_will_do(rule: str, call: str) -> str:
    """Return what has the guard repair the fault of a rule: that call, as in ``install()``."""
    first = f"`import cudaguard; {call}`"
    if rule in call:
        return f"put {first} first; {rule} is off by default, as it changes more than the fault"
    return f"run it in mode fix, or put {first} first: {rule} repairs it"


def _lost(libraries: Sequence[Mapping[str, str]], page: Page) -> tuple[list[str], str]:
    """Return the libraries that were not found, in words, and what to do if one is installed."""
    said, cure = [], ""
    for lost in libraries:
        where = f", requested at {stories.short(lost['where'])}" if lost["where"] else ""
        here = f", installed as {lost['installed']}" if lost["installed"] else ""
        said.append(f"{lost['name']}{where}{here}")
        cure = f"load {lost['installed']} first, by ctypes.CDLL" if here else cure
    return [f"not found: {page.listed(said)}"] if said else [], cure


def write(document: dict[str, Any], page: Page) -> None:
    """Write the report in words: what has happened, causes and remedy, then all stacks."""
    style = "bold" if document["ended"]["kind"] == "exited" else "bold red"
    page.add(f"cudaguard {document['tool']}: {document['what']}.", style=style)
    causes, ids, remedy = [], [rule["id"] for rule in document["rules"]], document["remedy"]
    for rule in document["rules"]:
        fits = "fits" if rule["is_certain"] else "may fit"
        libraries = page.listed([stories.short(file) for file in rule["libraries"]])
        were = f"; in the global symbol scope were {libraries}" if libraries else ""
        causes.append(f"{rule['id']} {fits}: {rule['title'] or rule['why']}{were}")
    error = document["error"]["finding"] if document["error"] is not None else None
    if document["error"] is not None and not document["process"]["is_program"]:
        causes += document["error"]["text"].splitlines()[:1]
    # An error of the guard's has said in the traceback what is wrong and what to do.
    name = document["error"]["text"].partition(":")[0] if error else ""
    if error is not None and not hasattr(errors, name):
        causes.append(f"[{error['id']}] {error['what']}")
        if not document["error"]["is_said"]:  # the first evidence is the error itself
            causes += (_IN_PACKAGES.sub(r"\1", item) for item in error["evidence"][1:])
        remedy = remedy or ("" if document["error"]["is_said"] else error["remedy"])
    said = error["id"] if error is not None else ""
    told = [f for f in document["findings"] if f["severity"] != "info" and f["id"] != said]
    for finding in told:
        causes.append(f"[{finding['id']}] {finding['what']}")
        ids.append(finding["id"])
        causes += (_IN_PACKAGES.sub(r"\1", item) for item in finding["evidence"])
    remedy = remedy or (told[0]["remedy"] if error is None and len(told) == 1 else "")
    if document["ended"]["kind"] == "timeout":
        remedy = remedy or "see what it waits for; if it only needs longer, raise --timeout"
    library = document["library"]
    of = f" of {library['distribution']}" if library and library["distribution"] else ""
    causes += [f"library: {stories.short(library['file'])}{of}"] if library else []
    lost, cure = _lost(document["not_found"], page)
    causes, remedy = causes + lost, remedy or cure
    page.items("because", (*causes, *document["hints"]), _INDENT)
    found = [f for f in document["findings"] if (f["id"], f["severity"]) == (INTERPOSED.id, "info")]
    rows = dict.fromkeys(row for f in reversed(found) for row in (f["what"], *f["evidence"]))
    page.items("symbols", [_IN_PACKAGES.sub(r"\1", row) for row in rows], _INDENT, 2 * MOST)
    page.labeled("fix", remedy, _INDENT)
    page.labeled("more", f"cudaguard explain {ids[0]}" if ids else "", _INDENT)
    page.labeled("repaired", page.listed(_grouped(document["repairs"])), _INDENT)
    if document["debugger"]:
        page.add("", _INDENT, whole=f"C stack: {document['debugger']}")
    page.labeled("running", ", and in it ".join(map(_step, document["running"][-MOST:])), _INDENT)
    if document["error"] is None or not document["process"]["is_program"]:  # else it printed that
        stories.add_stacks(page, stories.STACK, document)
    page.items("C frame", document["c_stack"], _INDENT)
    others, more = page.cut(document["others"])
    for other in others:
        stories.add_stacks(page, f"{stories.process_name(other)} was running", other)
    page.add(more, _INDENT)
    page.labeled("run", document["command"], _INDENT)


def _step(step: dict[str, Any]) -> str:
    verb = "import" if step["kind"] == "import" else "load"
    file = f" from {stories.short(step['file'])}" if step["file"] not in ("", step["name"]) else ""
    where = f" at {stories.short(step['where'])}" if step["where"] else ""
    return f"{verb} {step['name']}{file}{where}"


def _grouped(repairs: list[str]) -> list[str]:
    """Return one item for what was done to several things: to the first one, and to how many."""
    subjects: dict[str, list[str]] = {}
    for words in repairs:
        subject, _, done = words.rpartition(": ")
        subjects.setdefault(done, []).append(subject)
    return [
        f"{first}{f' and {len(more)} more' if more else ''}: {done}"
        for done, (first, *more) in subjects.items()
    ]


class Report:
    """The report of one run."""

    def __init__(
        self,
        launch: Launch,
        ended: ProgramEnd,
        folder: str,  # where its record is; empty if there is none
        kills_before: int = -1,  # `oom_kills` when it began
        missing: str = "",  # why something is missing from the record
        *,
        dumps: dict[int, list[FaultDump]] | None = None,  # of processes that run
        doing: str = "",  # what a process that runs does, as in ``waits``
    ) -> None:
        self._launch = launch
        self._ended = ended
        self._kills_before = kills_before
        self._missing = missing
        self._doing = doing
        self._faults = faults_in(folder) if dumps is None else dumps
        self._journal = read_events(os.path.join(folder, JOURNAL), _MOST) if folder else []
        self._processes = stories.processes_of(self._journal, self._faults)
        # The process that the report is about.
        self._about = self._processes.get(ended.pid, stories.Process(ended.pid))
        self._about = self._about._replace(signal=max(-ended.status, 0), asked=ended.sent)
        if ended.status > 0 and not ended.is_late:
            self._about = stories.explaining(self._processes, ended.pid, ended.status)
        self._is_program = self._about.pid == ended.pid
        # Python 3.9 does not tell the words of other processes.
        self._program = launch.program if self._is_program else program_of(self._about.program)
        is_error = not ended.is_late and self._about.signal not in stories.FAULT_NUMBERS
        self._fault = None if is_error else self._fault_of(self._about.pid)
        thread = self._fault.thread if self._fault is not None and self._fault.what else 0
        self._story = stories.story_of(self._journal, self._about.pid, thread)
        self._signal = self._about.signal if self._about.how else 0
        self._has_crashed = bool(self._signal) and not ended.is_late
        is_dead = ended.is_late or self._has_crashed or not self._is_program
        self._died_inside = is_dead or bool(self._story.error)
        frames = self._frames()
        self._sources = stories.Sources(self._program, frames, self._processes.values())
        self._stack = self._sources.frames(frames)
        self._fits = self._rules_that_fit() if self._died_inside else ()
        self._order, self._switch = self._misplaced() if self._died_inside else ("", "")
        self._place = stories.last_place(self._story, frames) if self._died_inside else ""
        self._waits: list[str] = []
        if ended.is_late and self._fault is not None:
            self._waits, circle = waits_of(self._fault, stories.shown_place)
            which = f"{'between' if len(circle) > 1 else 'in'} {' and '.join(circle)}"
            self._place = f": deadlock {which}" if circle else self._place

    def tell(
        self, path: str | None, *, verbose: bool = False, with_arguments: bool = False
    ) -> None:
        """Write the report: in words if there is something to say, as JSON to a file if asked.

        The file is for others to read, and shows no arguments of the program unless it may.
        """
        document = self.document()
        if self._has_report:
            text = laid_out(document, write, sys.stderr, verbose=verbose)
            say(f"\n{text}\n", sys.stderr)
        if path:
            document = document if with_arguments else self.document(with_arguments=False)
            write_text(path, json_text(shareable(document)) + "\n")

    @property
    def about(self) -> int:
        """The process that it tells of; 0 if there is nothing to say."""
        return self._about.pid if self._has_report else 0

    @property
    def _has_report(self) -> bool:
        """True if there is anything to say: not of a program that ends as it means to."""
        if self._ended.is_late or self._has_crashed or self._killed:
            return True
        if self._ended.status <= 0:
            return False
        error = self._story.error
        if error is None or not self._is_program:
            return not self._is_program
        # Is there more to say of the error than the program's own output says?
        has_more = not error.is_said or self._not_found or self._fits
        is_there = error.finding is None and any(lost.installed for lost in self._not_found)
        return bool((error.finding is not None and has_more) or self._order or is_there)

    @property
    def _killed(self) -> str:
        """How a child of a launcher that is no Python died, by the launcher's exit status."""
        number = self._ended.status - 128
        is_known = self._launch.prefix or self._ended.pid in self._processes or self._about.how
        if number not in stories.CRASHES or is_known or self._ended.is_late:
            return ""
        return f": probably a process that it had started {stories.died_of(number)}"

    def document(self, *, with_arguments: bool = True) -> dict[str, Any]:
        """Return the report as JSON-ready data, without the number of the schema.

        Without arguments, programs are alone, and stacks have no lines of source.
        """
        launched, program, sources = self._launch.program, self._program, self._sources
        if not with_arguments:
            launched, program = launched.without_arguments(), program.without_arguments()
            sources = stories.Sources(program, self._frames(), shows_lines=False)
        story, ended = self._story, self._ended
        name = signal_name(-ended.status) if ended.status < 0 else None
        how = {
            "kind": "timeout" if ended.is_late else "signal" if name else "exited",
            "status": TIMEOUT if ended.is_late else shell_status(ended.status),
            "signal": None if ended.is_late else name,
            "handed_on": sorted(map(signal_name, ended.sent)),
            "seconds": round(ended.seconds, 3),
        }
        about, fault, error = self._about, self._fault, story.error
        process = {
            "pid": about.pid,
            "is_program": self._is_program,
            "rank": about.rank,
            "ranks": about.ranks or None,
            "program": list(program.words),
        }
        others = [
            {
                "pid": pid,
                "rank": self._processes[pid].rank if pid in self._processes else None,
                "stack": sources.frames(dump.frames),
                "threads": sources.threads(dump),
            }
            for pid, dump in ((pid, self._fault_of(pid)) for pid in sorted(self._faults))
            if dump is not None and pid != about.pid and ended.is_late
        ]
        has_report, died_inside = self._has_report, self._died_inside
        fits = self._fits if has_report else ()
        fields = ("id", "title", "why", "grade", "links")
        reported = {fit.rule.id for fit in fits if not fit.call}  # by a rule that repairs nothing
        told = (f for f in story.findings if f.command and f.rule in reported)
        advice, command = next(((f.remedy, f.command) for f in told), ("", ""))
        rules = [
            {
                **{name: value for name, value in fit.rule.to_dict().items() if name in fields},
                "is_certain": fit.is_certain,
                "libraries": list(fit.libraries),
            }
            for fit in fits
        ]
        return {
            "tool": "run",
            "python": Facts().python,
            "platform": f"{sys.platform} {Facts().machine}",
            "what": f"{self._order}{self._headline()}",
            "program": list(launched.words),
            "mode": story.mode or None,  # that it had, which may not be the one asked for
            "ended": how,
            "process": process,
            "running": [step._asdict() for step in story.running] if died_inside else [],
            "stack": sources.frames(self._frames()),
            "threads": sources.threads(fault) if fault else [],
            "c_stack": list(fault.c_frames) if fault else [],
            "imported": list(story.imported),
            "mapped": list(story.mapped),
            "not_found": [library._asdict() for library in self._not_found] if died_inside else [],
            "repairs": [done.words for done in story.repairs],
            "findings": [found.to_dict() for found in (*story.findings, *self._stuck_in())],
            "error": error
            and {
                "text": error.text,
                "finding": error.finding and error.finding.to_dict(),
                "is_said": error.is_said,
            },
            "others": others,
            "rules": rules,
            "library": self._library(),
            "hints": self._hints(),
            "remedy": next((guard_will_do(fit.rule.id, fit.call) for fit in fits if fit.call), "")
            or advice
            or ("start processes with spawn or forkserver" if self._stuck_forks() else ""),
            "command": (self._switch or command or self._next(program)) if has_report else "",
            "debugger": self._debugger(program) if has_report else "",
        }

    def _headline(self) -> str:
        """Return in one sentence who has ended how, and where."""
        words = self._launch.program.words  # called by its file, or its module
        name = "".join(words[1:2] if words[:1] == ("-m",) else words[:1]) or "-"
        program = "the program" if name.startswith("-") else os.path.basename(name)
        has_name = not self._is_program or self._about.rank is not None
        who = stories.process_name(self._about._asdict()) if has_name else program
        if self._doing:
            return f"{stories.process_name(self._about._asdict())} {self._doing}{self._place}"
        if self._ended.is_late:
            return f"{who} timed out after {self._ended.seconds:.3g} s{self._place}"
        number = self._ended.status
        if not self._about.how:
            ended = stories.died_of(-number) if number < 0 else f"ended with status {number}"
            return f"{who} {ended}{self._killed}"
        then = "" if self._is_program else f"; {program} then ended with status {number}"
        return f"{who} {self._about.how}{self._place}{then}"

    # --- where ----------------------------------------------------------------------

    @property
    def _not_found(self) -> list[stories.NotFound]:
        """Libraries that were not found, unless none of them explains the error or the signal."""
        error = self._story.error
        finding = None if error is None else error.finding
        is_other = finding is not None and finding.id in _NOT_OF_FILES
        is_other = is_other or self._signal == SIGKILL  # no want of a file
        if is_other or not self._story.not_found:
            return []
        from cudaguard.system.preload import unfound

        # Of a program in another environment nothing is known; other libraries are its own affair.
        said = error.text.lower() if error is not None and self._launch.prefix else ""

        def copy_of(name: str) -> str:
            core = _CORE.match(name)
            return next(iter(unfound(name)), "") if core and core[1].lower() in said else ""

        return [one._replace(installed=copy_of(one.name)) for one in self._story.not_found]

    def _fault_of(self, pid: int) -> FaultDump | None:
        """Return what a process has written down last: when it died, or when it was asked."""
        dumps = reversed(self._faults.get(pid, ()))
        return next((dump for dump in dumps if self._ended.is_late != bool(dump.what)), None)

    def _frames(self) -> Frames:
        """Return where the process died, innermost first."""
        if self._fault is not None:
            return self._fault.frames
        return self._story.error.stack[::-1] if self._story.error else ()

    # --- why, and what then -----------------------------------------------------------

    def _rules_that_fit(self) -> tuple[stories.Fit, ...]:
        """Return the rules that may explain it, the likeliest."""
        from cudaguard.tools.doctor.checks import all_rules

        # The modules of rules that are off are not watched; the program says that it imports them.
        line = max((frame["line"] for frame in self._stack if frame["is_program"]), default=0)
        said = imports_of_file(self._sources.script)
        early = [entry.module.partition(".")[0] for entry in said if entry.line <= line]
        story = self._story._replace(imported=tuple(dict.fromkeys((*early, *self._story.imported))))
        found = stories.fitting(
            all_rules().values(), story, repaired_by(active_rules(), story.mode)
        )
        here = applying([fit.rule for fit in found], Facts())
        return stories.likeliest(fit for fit in found if fit.rule in here)

    def _misplaced(self) -> tuple[str, str]:
        """Return which imports are in an order that a rule forbids, and how to keep it."""
        from cudaguard.tools.explain import RULES
        from cudaguard.tools.lint import Project, misplaced

        script, running = self._sources.script, [step.name for step in self._story.running]
        files = [os.path.splitext(frame["file"])[0].split(os.sep) for frame in self._stack]
        rules = applying([rule for rule in (*RULES, *active_rules()) if rule.needs], Facts())
        for pair in misplaced(Project((), rules).steps(script), rules) if script else ():
            is_here = pair.early in running or any(pair.early in parts for parts in files)
            if is_here and pair.needed not in self._story.imported:
                late, early = (f"{stories.short(i.file)}:{i.line}" for i in (pair.first, pair.then))
                order = f"{pair.early} must be imported after {pair.needed}: move the import at "
                return f"{order}{late} above {early}; ", f"export CUDAGUARD_RULES=+{pair.rule.id}"
        return "", ""

    def _next(self, program: Program) -> str:
        """Return what its error's explanation says to run, else what shows more of the cause."""
        # It would start it with our Python, and without the other ranks.
        is_runnable = bool(self._launch.prefix and (self._is_program or self._story.running))
        error = self._story.error
        if error is not None and error.finding is not None and not self._has_crashed:
            words = program.words if is_runnable else ()
            if named := filled(error.finding.command, words):
                return named
        # A hang in no import is none of their order.
        is_other = self._ended.is_late and (not self._story.running or self._waits)
        is_other = is_other or any(lost.installed for lost in self._not_found)
        is_killed = self._has_crashed and self._signal not in stories.FAULT_NUMBERS
        if not is_runnable or is_other or is_killed or not self._died_inside:
            return ""
        if not program.script and program.words[:1] != ("-m",):
            names = list(dict.fromkeys(name.partition(".")[0] for name in self._story.imported))
            return f"cudaguard bisect --imports {','.join(names)}" if len(names) > 1 else ""
        option = f"--timeout {self._ended.seconds:.0f} " if self._ended.is_late else ""
        return f"cudaguard bisect {option}{shlex.join(program.words)}"

    def _library(self) -> dict[str, str] | None:
        """Return the library that was being loaded, or whose code crashed, and what it is of."""
        loading = [step.file for step in self._story.running[-1:] if step.kind == "load"]
        frames = self._fault.c_frames if self._fault is not None else ()
        inside = [frame.partition('"')[2].partition('"')[0] for frame in frames]
        own = (name for name in inside if not os.path.basename(name).startswith(_IN_ALL_STACKS))
        file = next(iter(loading), next(own, "")) if self._has_crashed else ""
        if not file:
            return None
        return {"file": file, "distribution": " and ".join(distributions_of([file]).get(file, ()))}

    def _debugger(self, program: Program) -> str:
        """Return what shows the C stack; empty if the process cannot be started again."""
        is_native = self._has_crashed and self._signal in stories.FAULT_NUMBERS
        is_there = os.name == "posix" and self._launch.prefix and self._is_program
        return debugger(program.words) if is_native and is_there and not self._fits else ""

    def _stuck_in(self) -> list[Finding]:
        """Return what is known for certain of the place where a process hangs."""
        dumps = chain.from_iterable(self._faults.values()) if self._ended.is_late else ()
        places = (f"{file}:{line} in {name}" for dump in dumps for file, line, name in dump.frames)
        hit = best_in(text, known_errors(), [text]) if (text := "\n".join(places)) else None
        return [hit.finding] if hit is not None and hit.known.certainty >= CERTAIN else []

    def _stuck_forks(self) -> list[str]:
        """Return what forks that wait outside Python lack of their parent."""
        stuck: dict[str, list[str]] = {}
        for pid in sorted(self._faults) if self._ended.is_late else ():
            dump, lacks = self._fault_of(pid), self._processes.get(pid, stories.Process(pid)).lacks
            if dump and lacks and dump.frames and origin_of_file(dump.frames[0][0]) != STANDARD:
                stuck.setdefault(lacks, []).append(f"process {pid}")
        return [f"{listed(who)}: {lacks}" for lacks, who in stuck.items()]

    def _hints(self) -> list[str]:
        hints = [*self._waits, *self._stuck_forks()]
        for process in self._processes.values() if self._killed else ():
            last = "" if process.rank is None else stories.story_of(self._journal, process.pid).last
            hints += (
                [f"{stories.process_name(process._asdict())} was last seen{last}"] if last else []
            )
        is_killed = self._has_crashed and self._signal == SIGKILL
        if is_killed or "SIGKILL" in self._killed:
            now, before = oom_kills(), self._kills_before
            hints.append(
                "the kernel killed a process of this container or job because it was out of "
                "memory: give it more, or use less (smaller batches, fewer workers)"
                if now > before >= 0
                else "killed by SIGKILL, sender unknown: check dmesg and your scheduler's log"
            )
        elif self._story.forked:
            hints.append(
                "a forked process cannot use CUDA that its parent has initialized: if this one "
                "did, initialize CUDA in the workers alone (gunicorn without --preload), or start "
                "them with spawn (CG818)"
            )
        elif self._has_crashed and self._about.lacks:
            hints.append(f"it was {self._about.lacks}")
        elif not (self._processes or self._missing or self._doing):
            hints.append(
                "the command started no guarded Python: it starts none, starts it with -I or -E, "
                "or changes PYTHONPATH"
            )
        elif self._has_crashed and self._fault is None and not self._missing:
            why = "the program's own code had ended, and a library crashed as it was cleaned up"
            if not self._story.last.startswith(stories.AT_EXIT):
                why = "the program's own faulthandler (see above), a signal handler or exec hid it"
            hints.append(f"{signal_name(self._signal)} left no Python stack here: {why}")
        if self._missing:
            missing = "this report is incomplete, as the run could not be recorded: "
            hints.append(missing + self._missing)
        return hints


def filled(command: str, words: Sequence[str]) -> str:
    """Return a command of `explain` for this program; empty if it has a slot, or is this command.

    There are no words where the program cannot be started again.
    """
    slots = {"FILE", "SCRIPT"}.intersection(command.split())
    if command.startswith("cudaguard run") or "FILE" in slots or (slots and not words):
        return ""
    return command.replace("SCRIPT", shlex.join(words))


# --- Which threads wait for each other ------------------------------------------------------------

_LARGEST = 1 << 20  # bytes of a source
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_LOCK = re.compile(r"(?:threading\.)?(R?)Lock\(\)")
_STATEMENT = re.compile(r"import ([\w.]+)(?: as \w+)?|from (\w[\w.]*) import .*")
_JOIN = re.compile(r"[\w.]+\.join\(\)")
_IMPORT, _THREADING = "<frozen importlib", f"{os.sep}threading.py"


def waits_of(dump: FaultDump, shown: Callable[[str], str]) -> tuple[list[str], list[str]]:
    """Return who waits for whom, in words; and the names of those that wait for each other.

    `shown` makes words of ``file:line``.
    """
    stacks = [dump.frames, *(other.frames for other in dump.others)]
    names = [dump.name, *(other.name for other in dump.others)]
    threads = [*enumerate(stacks)]
    holders: dict[tuple[str, str], set[int]] = {}
    for number, frames in threads:
        for file, line, function in frames:
            for lock in _source(file).at(line, function)[1]:
                holders.setdefault((file, lock), set()).add(number)
    found: dict[int, tuple[int, str, str]] = {}
    for number, frames in threads:
        outside = [f for f in frames if not (f[0].startswith(_IMPORT) or f[0].endswith(_THREADING))]
        names[number] = names[number] or f"a thread in {''.join(f[2] for f in outside[-1:])}"
        others = {*range(len(threads))} - {number}
        for file, line, function in outside[:1]:
            source, called = _source(file), frames[0][2].rpartition(".")[2]
            code, lock = source.code(line), source.at(line, function)[0]
            statement = _STATEMENT.fullmatch(code)
            candidates, what = set[int](), "the end of %s"
            if frames[0] == (file, line, function) and lock:
                held = holders.get((file, lock), set())
                candidates = held & others or (held if source.locks[lock] else set())
                what = f"the lock {lock}, which %s holds"
            elif frames[0][0].startswith(_IMPORT) and called == "acquire" and statement:
                name = statement[1] or statement[2]
                path = os.sep + name.replace(".", os.sep)
                ends = f"{path}.py", f"{path}{os.sep}__init__.py"
                runs = ((n, f) for n in others for f in stacks[n] if f[2] == "<module>")
                candidates = {n for n, frame in runs if frame[0].endswith(ends)}
                what = f"the import of {name}, which %s runs"
            elif called in ("join", "_wait_for_tstate_lock") and _JOIN.fullmatch(code):
                candidates = others
            if len(candidates) == 1:
                found[number] = min(candidates), what, shown(f"{file}:{line}")
    words = []
    for number, (holder, what, where) in found.items():
        first, _, last = what.partition("%s")
        words.append(f"{names[number]} waits for {first}{names[holder]}{last}, at {where}")
    for start in found:
        chain = [start]
        while chain[-1] in found and chain[-1] not in chain[:-1]:
            chain.append(found[chain[-1]][0])
        if chain[-1] == start and chain[1:]:
            return words, [names[number] for number in chain[:-1]]
    return words, []


class _Source:
    """A source; an empty one for what cannot be read.

    `locks`: the name of each lock; False if a thread may enter it again.
    """

    def __init__(self, file: str) -> None:
        try:
            text = read_bytes(file, _LARGEST)
            self._tree = ast.parse(text)
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
            text, self._tree = b"", ast.Module([], [])
        self._lines = text.decode("utf-8", "replace").splitlines()
        nodes = list(ast.walk(self._tree))
        uses = Counter(node.id for node in nodes if isinstance(node, ast.Name))
        blocks = Counter(_name_in(node) for node in nodes if isinstance(node, ast.withitem))
        # Names of parameters, imports, functions ...
        others = {getattr(node, key, None) for node in nodes for key in ("arg", "name", "asname")}
        self.locks: dict[str, bool] = {}
        for made in (node for node in self._tree.body if isinstance(node, ast.Assign)):
            lock = _LOCK.fullmatch(ast.unparse(made.value))
            name = ast.unparse(made.targets[0])
            if lock and name not in others and uses[name] == blocks[name] + 1:
                self.locks[name] = not lock[1]

    def code(self, line: int) -> str:
        """Return a line, without blanks around it."""
        return "".join(self._lines[line - 1 : line]).strip()

    def at(self, line: int, function: str) -> tuple[str, set[str]]:
        """Return the lock that is taken on a line of a function, and those that it holds there."""
        scope, taken, held = "<module>", "", set[str]()
        node: Any = self._tree
        while node is not None:
            if isinstance(node, _SCOPES):
                scope, taken, held = getattr(node, "name", "<lambda>"), "", set()
            elif isinstance(node, ast.With):
                names = {*map(_name_in, node.items)} & self.locks.keys()
                is_inside = line > (node.items[-1].context_expr.end_lineno or line)
                held |= names if is_inside else set()
                is_entered = len(node.items) == 1 and line < node.body[0].lineno
                taken = "".join(names) if is_entered else ""
            inner = (
                n for n in ast.iter_child_nodes(node) if getattr(n, "lineno", line + 1) <= line
            )
            node = next((n for n in inner if line <= (n.end_lineno or 0)), None)  # type: ignore[attr-defined]
        return (taken, held) if scope == function.rpartition(".")[2] else ("", set())


def _name_in(item: ast.withitem) -> str:
    return getattr(item.context_expr, "id", "")


_source = cache(_Source)
