"""Reports from the record why the program under ``cudaguard run`` died."""

from __future__ import annotations

import os
import signal
import sys

from cudaguard.core.journal_reader import FaultDump, last_initialized, read_events, read_faults
from cudaguard.core.record import FAULTS, FOLDER_VARIABLE, JOURNAL
from cudaguard.files import LARGEST, read_bytes, write_text
from cudaguard.files.text import printable_data
from cudaguard.system.facts import Facts
from cudaguard.system.limits import address_space, oom_kills
from cudaguard.system.redact import redacted_arguments
from cudaguard.tools.common import TIMEOUT, json_text, note, paint, say
from cudaguard.tools.run import messages as wording
from cudaguard.tools.run.conclusions import Fit, fitting, likeliest, story_of
from cudaguard.tools.run.patch import imports_up_to, moved_first, with_guard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cudaguard.tools.run.program import Program
    from cudaguard.tools.run.supervise import ProgramEnd, Supervisor

# Of these nobody dies who was asked to end; SIGKILL is among them as it can be no wish of ours.
CRASHES = frozenset(
    getattr(signal, name)
    for name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSYS", "SIGTRAP", "SIGKILL")
    if hasattr(signal, name)
)
_MOST = 1 << 23  # bytes of the record: a hundred thousand events, two seconds of reading
RUNPY = os.path.join(os.path.dirname(os.__file__), "runpy.py")
_FAULTS_OF_PYTHON = frozenset(CRASHES - {getattr(signal, "SIGKILL", 0)})


class Report:
    """The report of one run.

    Args:
        program: What was run.
        ended: How it ended.
        folder: Where its record is; empty if there is none.
        kills_before: `oom_kills` when it began.
        missing: Why something is missing from the record; empty if nothing is.
    """

    def __init__(
        self, program: Program, ended: ProgramEnd, folder: str, kills_before: int, missing: str = ""
    ) -> None:
        self._program = program
        self._ended = ended
        self._faults = _faults_in(folder)
        fault = self._own_fault()
        thread = fault.thread if fault is not None and fault.what else 0
        journal = read_events(os.path.join(folder, JOURNAL), _MOST) if folder else []
        self._story = story_of(journal, ended.pid, thread)
        self._mode = self._story.mode  # that it had, which may not be the one asked for
        self._script = program.script or self._module_of_program()
        self._folder = folder
        self._sources: dict[str, list[str]] = {}
        self._kills_before = kills_before
        self._missing = missing
        self._more_hints: list[str] = []
        self.initializing = ""

    @property
    def has_crashed(self) -> bool:
        """True if it was killed by a signal that was not sent through us."""
        number = -self._ended.status
        return not self._ended.is_late and number in CRASHES and number not in self._ended.sent

    @property
    def is_told(self) -> bool:
        """True if there is anything to say: not of a program that ends as it means to."""
        if self._ended.is_late or self.has_crashed:
            return True
        if self._ended.status <= 0:
            return False
        error = self._story.error
        is_known = error is not None and error.finding is not None
        return is_known or bool(self._fatal_elsewhere()) or self._is_out_of_memory()

    def document(self) -> dict[str, Any]:
        """Return the report as JSON-ready data, without the number of the schema."""
        import cudaguard

        story, ended = self._story, self._ended
        name = wording.signal_name(-ended.status) if ended.status < 0 else None
        status = ended.status if name is None else 128 - ended.status
        how = {
            "kind": "timeout" if ended.is_late else "signal" if name else "exited",
            "status": TIMEOUT if ended.is_late else status,
            "signal": None if ended.is_late else name,
            "handed_on": sorted(map(wording.signal_name, ended.sent)),
            "seconds": round(ended.seconds, 3),
        }
        fault = self._own_fault()
        stack, error = self._stack(fault), story.error
        others = [
            {
                "pid": pid,
                "is_fork": pid == ended.pid,
                "what": one.what,
                "stack": [self._frame(*frame) for frame in one.frames],
            }
            for pid, one in self._fatal_elsewhere()
        ]
        fits = self._fits(stack) if self.is_told else ()
        change = self._change(fits, stack) if self.is_told else None
        return {
            "tool": "run",
            "version": cudaguard.__version__,
            "python": Facts().python,
            "platform": f"{sys.platform} {Facts().machine}",
            "what": wording.summary(how, others, error.text if error else ""),
            "arguments": redacted_arguments(self._program.words),
            "mode": self._mode or None,
            "ended": how,
            "running": [step._asdict() for step in story.running] if self._died_inside() else [],
            "stack": stack,
            "c_stack": list(fault.c_frames) if fault else [],
            "initializing": self.initializing,
            "imported": list(story.imported),
            "mapped": list(story.mapped),
            "recent": list(story.recent) if self._died_inside() else [],
            "repairs": [done.words for done in story.repairs],
            "findings": [finding.to_dict() for finding in story.findings],
            "error": error
            and {"text": error.text, "finding": error.finding and error.finding.to_dict()},
            "others": others,
            "rules": [_described(fit) for fit in fits],
            "hints": self._hints(fault),
            "change": change,
            "command": self._bisect() if self.is_told and self._died_inside() else "",
        }

    def learn_initializing(self, supervisor: Supervisor, environment: Mapping[str, str]) -> None:
        """Run the program once more, to learn which library the dynamic loader initialized last."""
        note("run", "once more, silently, under LD_DEBUG=libs ...")
        path = os.path.join(self._folder, "loader")
        second = supervisor.run(
            {**environment, FOLDER_VARIABLE: "", "LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": path},
            is_silent=True,
        )
        if second.status == self._ended.status:
            self.initializing = last_initialized(f"{path}.{second.pid}")
        else:
            self._more_hints.append(wording.ended_otherwise(second.status))

    def _died_inside(self) -> bool:
        return self._ended.is_late or self.has_crashed or bool(self._story.error)

    # --- where ----------------------------------------------------------------------

    def _own_fault(self) -> FaultDump | None:
        """Return what the program itself has written down in its last moment."""
        own = self._faults.get(self._ended.pid, [])
        if self._ended.is_late:
            asked = [fault for fault in own if not fault.what]
            return asked[-1] if asked else None
        fatal = [fault for fault in own if fault.what]
        return fatal[-1] if fatal and -self._ended.status in _FAULTS_OF_PYTHON else None

    def _fatal_elsewhere(self) -> list[tuple[int, FaultDump]]:
        """Return the faults of other processes; a fork writes to the file of its parent."""
        mine, own_pid = self._own_fault(), self._ended.pid
        asked_too = self._ended.is_late
        return [
            (pid, fault)
            for pid, faults in sorted(self._faults.items())
            for fault in faults
            if fault is not mine and (fault.what or (asked_too and pid != own_pid))
        ]

    def _stack(self, fault: FaultDump | None) -> list[dict[str, Any]]:
        if fault is not None:
            return [self._frame(*frame) for frame in fault.frames]
        error = self._story.error
        return [self._frame(*frame) for frame in reversed(error.stack)] if error else []

    def _frame(self, file: str, line: int, function: str) -> dict[str, Any]:
        source = "".join(self._lines_of(file)[line - 1 : line]).strip() if line > 0 else ""
        if not source and self._is_program(file):
            source = "".join(self._program.words[1].splitlines()[line - 1 : line]).strip()
        return {
            "file": file,
            "line": line,
            "function": function,
            "source": source,
            "is_program": self._is_program(file),
        }

    def _is_program(self, file: str) -> bool:
        if not self._script:
            return file == "<string>" and self._program.words[0] == "-c"
        return os.path.abspath(file) == os.path.abspath(self._script)

    def _module_of_program(self) -> str:
        """Return the file of ``-m MODULE``, as its frames tell it; it is not imported for that."""
        if self._program.words[0] != "-m":
            return ""
        fault, error = self._own_fault(), self._story.error
        frames = fault.frames if fault else tuple(reversed(error.stack)) if error else ()
        between = ("<frozen ", RUNPY)
        outer = [file for file, _, _ in frames if not file.startswith(between)]
        return outer[-1] if outer else ""

    def _source(self) -> str:
        """Return the text of the program, empty if it is in no file or that cannot be read."""
        try:
            return read_bytes(self._script, LARGEST).decode()
        except (OSError, ValueError):
            return ""

    def _lines_of(self, file: str) -> list[str]:
        """Return the lines of a source, none if it cannot be read."""
        if file not in self._sources:
            try:
                text = read_bytes(file, LARGEST).decode("utf-8", "replace")
            except (OSError, ValueError):
                text = ""
            self._sources[file] = text.splitlines()
        return self._sources[file]

    # --- why, and what then -----------------------------------------------------------

    def _fits(self, stack: list[dict[str, Any]]) -> tuple[Fit, ...]:
        from cudaguard.api import active_rules
        from cudaguard.core.decide import applying
        from cudaguard.core.modes import repaired_by
        from cudaguard.tools.catalog import RULES

        if not self._died_inside():
            return ()
        # The modules of rules that are off are not watched; the program says that it imports them.
        said = [p for line in _own_lines(stack) for p in imports_up_to(self._source(), line)]
        imported = tuple(dict.fromkeys((*said, *self._story.imported)))
        active = active_rules()
        known = {rule.id: rule for rule in (*RULES, *active)}
        cured = repaired_by(active, self._mode)
        fits = fitting(known.values(), self._story._replace(imported=imported), cured)
        here = applying([fit.rule for fit in fits], Facts())
        return likeliest(fit for fit in fits if fit.rule in here)

    def _change(self, fits: tuple[Fit, ...], stack: list[dict[str, Any]]) -> dict[str, str] | None:
        """Return the suggested change of the program: what it does, and as a patch."""
        source = self._source()
        if not source:
            return None
        call, id = next(((fit.call, fit.rule.id) for fit in fits if fit.call), ("", ""))
        if call:
            what = wording.guard_will_do(id, is_opt_in=id in call)
            patch = with_guard(source, self._script, call)
            return {"what": what, "patch": patch} if patch else None
        own = _own_lines(stack)
        if not (self.has_crashed and self._story.running and own):
            return None
        before = {name.partition(".")[0] for name in self._story.imported}
        patch = moved_first(source, self._script, own[0], before)
        moved = imports_up_to(source, own[0])[-1:]
        return {"what": wording.order_may_do(*moved), "patch": patch} if patch and moved else None

    def _bisect(self) -> str:
        """Return the command that finds the imports which do it."""
        import shlex

        if not self._program.script and self._program.words[0] != "-m":
            names = list(dict.fromkeys(n.partition(".")[0] for n in self._story.imported))
            return f"cudaguard bisect --imports {','.join(names)}" if len(names) > 1 else ""
        limit = f"--timeout {self._ended.seconds:.0f} " if self._ended.is_late else ""
        return f"cudaguard bisect {limit}{shlex.join(redacted_arguments(self._program.words))}"

    def _hints(self, fault: FaultDump | None) -> list[str]:
        number = -self._ended.status
        hints = self._more_hints[:]
        if self.has_crashed and number == signal.SIGKILL:
            now = oom_kills()
            kills = now - self._kills_before if min(now, self._kills_before) >= 0 else None
            hints.append(wording.killed_for_memory(kills))
        elif self.has_crashed and fault is None and not self._missing:
            hints.append(wording.no_traceback(wording.signal_name(number)))
        if self._missing:
            hints.append(wording.not_recorded(self._missing))
        if self._is_out_of_memory():
            hints.append(wording.limited_address_space(address_space()))
        return hints

    def _is_out_of_memory(self) -> bool:
        error = self._story.error
        return bool(error and error.text.startswith("MemoryError") and address_space())


def _faults_in(folder: str) -> dict[int, list[FaultDump]]:
    found: dict[int, list[FaultDump]] = {}
    try:
        names = os.listdir(folder)
    except OSError:
        return found
    for name in names:
        pid = name[len(FAULTS) :]
        if name.startswith(FAULTS) and pid.isdecimal():
            found[int(pid)] = read_faults(os.path.join(folder, name))
    return found


def _own_lines(stack: list[dict[str, Any]]) -> list[int]:
    """Return the lines of the program itself that were running, innermost first."""
    return [frame["line"] for frame in stack if frame["is_program"]]


def _described(fit: Fit) -> dict[str, Any]:
    fields = ("id", "title", "why", "grade", "links")
    rule = {name: value for name, value in fit.rule.to_dict().items() if name in fields}
    return {**rule, "is_certain": fit.is_certain, "libraries": list(fit.libraries)}


def tell(report: Report, path: str | None) -> None:
    """Write the report: in words where there is something to say, as JSON to a file if asked."""
    document = report.document()
    if report.is_told:
        text = wording.as_text(
            printable_data(document), lambda text: paint(text, "bold", sys.stderr)
        )
        say(f"\n{text}\n", sys.stderr)
    if path:
        write_text(path, json_text(document) + "\n")
