"""The trace as a document: a timeline of a program's native libraries, from its journal.

A step is something that takes time (an import, the loading of a library) or a moment (CUDA was
initialized, a fault was found), as JSON-ready data.
"""

from __future__ import annotations

import os
import shlex
import sys

from cudaguard.core.journal_reader import (
    Begun,
    CudaUsed,
    Found,
    Mapped,
    ModeSet,
    Over,
    ProcessEnded,
    Raised,
    Started,
    read_events,
)
from cudaguard.core.record import JOURNAL
from cudaguard.core.reports import Repaired
from cudaguard.elf.library_facts import distributions_of, read_library, version_of
from cudaguard.system.facts import Facts
from cudaguard.system.processes import signal_name
from cudaguard.system.runtimes import runtime_of, stem_of
from cudaguard.tools.common import TIMEOUT
from cudaguard.tools.run.story import add_frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from cudaguard.core.journal_reader import Line
    from cudaguard.tools.layout import Page
    from cudaguard.tools.run.launch import Launch
    from cudaguard.tools.run.supervise import ProgramEnd

    Row = Mapping[str, Any]
    Step = dict[str, Any]

# --- A trace in words: a line per import, load and event, indented by what happened inside what.

_DEEPEST = 40  # levels of indentation
_LONGEST = 200  # characters of what was run
_MOST = 8  # names of modules on a line
_STYLES = {"cuda": "green", "finding": "yellow", "error": "red", "died": "red", "repair": "cyan"}
_SIGNS = {"cuda": "●", "finding": "▲", "repair": "✓", "error": "✗"}
_WITHOUT_NAME = {"start": "at start", "unseen": "past the importer"}
_UNITS = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB"))


def size(number: int) -> str:
    """Return a number of bytes in a unit that suits it."""
    for factor, unit in _UNITS:
        if number >= factor:
            value = number / factor
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return f"{number} B"


def count(number: int, what: str) -> str:
    """Return ``1 library``, ``2 libraries``."""
    if number == 1:
        return f"1 {what}"
    return f"{number} {what[:-1] + 'ies' if what.endswith('y') else what + 's'}"


def title(document: Mapping[str, Any]) -> str:
    """Return what the trace is of."""
    return f"Native libraries of: {command_line(document['program'])}"


def command_line(program: Sequence[str]) -> str:
    """Return what was run in one line, cut where it is long."""
    text = " ".join(" ".join(program).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def headline(document: Mapping[str, Any]) -> str:
    """Return in one sentence what was mapped, and who initialized CUDA."""
    told = document["summary"]
    mapped = f"{count(told['libraries'], 'library')} ({size(told['bytes'])})"
    parts = [f"{mapped} in {document['seconds']:.2f} s", initializer(told["initializer"])]
    if told["findings"]:
        parts.append(count(told["findings"], "finding"))
    return "; ".join(parts)


def initializer(actor: str | None) -> str:
    """Return who has initialized CUDA, as a clause."""
    if actor is None:
        return "nothing initialized CUDA"
    return f"CUDA was initialized by {actor or 'the program, between two imports'}"


def end(document: Mapping[str, Any]) -> str:
    """Return how the program ended, empty if it was well."""
    ended: Mapping[str, Any] = document["ended"]
    where = document["summary"]["died_in"]
    inside = f" in {base(where)}" if where else ""
    if ended["kind"] == "signal":
        return f"died of {ended['signal']}{inside}"
    if ended["kind"] == "timeout":
        return f"ended as its time was up{inside}"
    return f"exit status {ended['status']}" if ended["status"] else ""


def base(name: str) -> str:
    """Return the last part of a path, or the name as it is."""
    return name.rpartition("/")[2] or name


def place(where: str) -> str:
    """Return ``train.py:3`` or ``torch/__init__.py:3`` for a place in the code."""
    folder, _, name = where.rpartition("/")
    return f"{base(folder)}/{name}" if name.startswith("__init__.") else name


def label(row: Row) -> str:
    """Return what a row is about."""
    kind, names = row["kind"], row["names"]
    if kind == "import":
        return f"import {row['name']}"
    if len(names) > 1:
        whose = "Python itself" if row["owner"] == "Python" else row["owner"]
        what = "dlopen of {} libraries" if kind == "library" else "{} extension modules"
        return f"{what.format(len(names))} of {whose}"
    if kind == "library":
        return f"dlopen {base(row['name'])}"
    return _WITHOUT_NAME.get(kind) or str(row["name"])


def state(row: Row) -> str:
    """Return what became of an import or a load that did not end well; else nothing."""
    return {"failed": "failed", "unfinished": "never ended"}.get(row["state"], "")


def write(document: Mapping[str, Any], page: Page) -> None:
    """Write the trace in words.

    Args:
        document: The trace, its processes with ``rows`` (see `document.rows_of`).
        page: Where to.
    """
    page.add(title(document), style="bold")
    for process in document["processes"]:
        if len(document["processes"]) > 1:
            page.blank()
            page.add(process_title(process), style="bold")
        page.block("  at/s  took/s", style="dim")
        for row in process["rows"]:
            text, style = _line(row, page)
            depth = min(row["depth"], page.width // 6 if page.width else _DEEPEST)
            took = " " * 6 if row["seconds"] is None else f"{row['seconds']:6.3f}"
            lead = f"{row['at']:6.3f}  {took}  {'  ' * depth}"
            page.add(text, lead=lead, style=style, hanging=len(lead) + 2)
    if page.is_cut:
        page.add("--verbose lists the libraries that are only counted here", style="dim")
    page.add(headline(document), style="bold")
    if end(document):
        page.add(f"{_SIGNS['error']} {end(document)}", style=_STYLES["died"])
        for frame in document["ended"]["stack"]:
            add_frame(page, frame, 4)
    page.labeled("run", document["command"], 0) if document["command"] else None


def process_title(process: Mapping[str, Any]) -> str:
    """Return which process it is."""
    if process["is_program"]:
        return f"process {process['pid']}: the program"
    by = f", started by {process['parent']}" if process["parent"] else ""
    return f"process {process['pid']}{by}: {command_line(process['program']) or 'a fork'}"


def _line(row: Row, page: Page) -> tuple[str, str]:
    kind = row["kind"]
    if kind in _SIGNS:
        told = f" ({place(row['where'])})" if row["where"] else ""
        prefix = f"{row['id']} " if kind == "finding" else ""
        return f"{_SIGNS[kind]} {prefix}{row['name']}{told}", _STYLES[kind]
    parts = [label(row)]
    modules = row["names"] if len(row["names"]) > 1 else []
    if modules:
        parts.append(f"({page.listed([base(name) for name in modules], _MOST, '')})")
    elif row["where"]:
        parts.append(f"({place(row['where'])})")
    if row["brought"]:
        parts.append(f"+ {page.listed(row['brought'], option='')}")
    if row["is_known"]:
        parts.append("(there already)")
    if row["is_guards"]:
        parts.append("(for cudaguard itself)")
    if state(row):
        parts.append(f"← {state(row)}")
    return " ".join(parts), _STYLES["died"] if state(row) else "" if row["mapped"] else "dim"


_LOADS = ("extension", "library")  # kinds of steps by which Python code has something loaded
_STEPS = {"import": ("import",), "load": _LOADS}  # kind of an event -> kinds of steps
_SYSTEM = ("/usr/", "/lib", "/opt/")
_LISTS = ("names", "files", "mapped", "brought", "spans")  # of rows
_OF_FINDINGS = ("id", "severity", "consequence", "remedy")
_OF_DRIVER = ("actor", "how", "device")
_OF_CUDA = ("CG814", "CG815")  # findings that say what an event of the driver says


def document_of(
    launch: Launch, ended: ProgramEnd, folder: str, *, with_arguments: bool = True
) -> dict[str, Any]:
    """Return the trace as JSON-ready data, without the number of the schema.

    Args:
        launch: What was run.
        ended: How it ended.
        folder: Where its record is.
        with_arguments: False to name programs alone, without arguments and lines of source.
    """
    import cudaguard
    from cudaguard.tools.run.launch import parsed

    if not with_arguments:
        launch = launch._replace(program=launch.program.without_arguments())
    processes = processes_of(read_events(os.path.join(folder, JOURNAL)), ended.pid)
    _complete(library for process in processes for library in libraries_of(process))
    for process in processes:
        if not with_arguments:
            process["program"] = list(parsed(process["program"])[0].without_arguments().words)
        process["is_program"] = process["pid"] == ended.pid
    name = signal_name(-ended.status) if ended.status < 0 and not ended.is_late else None
    document = {
        "tool": "trace",
        "version": cudaguard.__version__,
        "python": Facts().python,
        "platform": f"{sys.platform} {Facts().machine}",
        "program": list(launch.program.words),
        "mode": processes[0]["mode"] if processes else "",
        "seconds": round(ended.seconds, 3),
        "ended": {
            "kind": "timeout" if ended.is_late else "signal" if name else "exited",
            "status": TIMEOUT if ended.is_late else 128 - ended.status if name else ended.status,
            "signal": name,
            "stack": _stack(launch, ended, folder, shows_lines=with_arguments),
        },
        "summary": {},
        "command": _next_command(launch, ended),
        "processes": processes,
    }
    document["summary"] = summary_of(document)
    return document


def _next_command(launch: Launch, ended: ProgramEnd) -> str:
    """Return the command whose report says why the program died; empty if it did not."""
    from cudaguard.tools.run.crash import CRASHES

    number = -ended.status
    has_crashed = number in CRASHES and number not in ended.sent
    if not (ended.is_late or has_crashed):
        return ""
    limit = ("--timeout", f"{max(1, round(ended.seconds))}") if ended.is_late else ()
    return shlex.join(("cudaguard", "run", *limit, *launch.program.words))


def _stack(launch: Launch, ended: ProgramEnd, folder: str, *, shows_lines: bool) -> list[str]:
    """Return where the program was when it died, or its time was up: a line for each frame."""
    from cudaguard.tools.run.record import faults_in
    from cudaguard.tools.run.story import Sources, lines_of

    if ended.status >= 0 and not ended.is_late:
        return []
    dumps = faults_in(folder).get(ended.pid, [])
    found = [dump for dump in dumps if bool(dump.what) != ended.is_late]
    sources = Sources(launch.program, "", shows_lines=shows_lines)
    return lines_of(sources.frames(found[-1].frames)) if found else []


def _complete(libraries: Iterable[dict[str, Any]]) -> None:
    """Add what the files are to the libraries."""
    entries = list(libraries)
    packages = distributions_of(dict.fromkeys(entry["file"] for entry in entries))
    known: dict[str, dict[str, Any]] = {}
    for entry in entries:
        path = entry["file"]
        if path not in known:
            file = read_library(path)
            stem = stem_of(os.path.basename(path))
            wheel = runtime_of(stem).wheel if stem else ""
            known[path] = {
                "name": file.soname or os.path.basename(path),
                "package": packages.get(path, ""),
                "version": ".".join(map(str, version_of(path, file.soname, wheel))),
                "build": file.build,
                "bytes": file.size,
            }
        entry.update(known[path])


# --- steps --------------------------------------------------------------------------


def processes_of(lines: Iterable[Line], pid: int) -> list[dict[str, Any]]:
    """Return the processes of a program, each with its steps in the order in which they began.

    Args:
        lines: The journal.
        pid: Process id of the program itself, which comes first.
    """
    found: dict[int, list[_Process]] = {}
    began = 0.0
    for line in lines:
        began = began or line.time
        known = found.setdefault(line.pid, [])
        # One process may run several programs, one after the other (exec).
        if isinstance(line.event, Started) or not known:
            known.append(_Process(line, began))
        known[-1].take(line)
    processes = [process for known in found.values() for process in known]
    processes.sort(key=lambda process: (process.pid != pid, process.began))
    return [process.document() for process in processes]


class _Process:
    """Puts the steps of one process together.

    Args:
        first: Its first line.
        zero: The time from which seconds are counted.
    """

    def __init__(self, first: Line, zero: float) -> None:
        start = first.event if isinstance(first.event, Started) else Started(None, ())
        self.pid = first.pid
        self.began = first.time - zero
        self._parent = start.parent
        self._program = list(start.program)
        self._zero = zero
        self._ended: float | None = None
        self._mode = ""
        self._steps: list[Step] = []
        self._open: dict[int, list[Step]] = {}  # by thread, outermost first
        self._threads: dict[int, int] = {}

    def document(self) -> dict[str, Any]:
        """Return what was found."""
        return {
            "pid": self.pid,
            "parent": self._parent,
            "program": self._program,
            "mode": self._mode,
            "began": _rounded(self.began),
            "ended": self._ended,
            "steps": self._steps,
        }

    def take(self, line: Line) -> None:
        """Take in the next line."""
        event, at = line.event, _rounded(line.time - self._zero)
        stack = self._open.setdefault(line.thread, [])
        if isinstance(event, Begun):
            kind = (
                "import" if event.kind == "import" else "extension" if event.module else _LOADS[1]
            )
            told = {"state": "unfinished", "file": event.file, **_who(event.importing)}
            stack.append(self._step(kind, event.module or event.file, at, line, **told))
        elif isinstance(event, Over):
            kinds = tuple(kind for one in event.kinds for kind in _STEPS[one])
            _close(stack, kinds, event.name, at, "failed" if event.is_failed else "done")
        elif isinstance(event, Mapped):
            self._mapped(stack, event, at, line)
        elif isinstance(event, CudaUsed):
            told = {"what": event.what, **{key: getattr(event, key) for key in _OF_DRIVER}}
            self._step("cuda", event.words, at, line, **told)
        elif isinstance(event, Found):
            finding = event.finding
            told = {key: getattr(finding, key) for key in _OF_FINDINGS}
            self._step("finding", finding.what, at, line, **told)
        elif isinstance(event, Repaired):
            self._step("repair", event.words, at, line)
        elif isinstance(event, Raised):
            self._step("error", event.text, at, line)
        elif isinstance(event, ModeSet):
            self._mode = event.mode
        elif isinstance(event, ProcessEnded):
            self._ended = at

    def _step(self, kind: str, name: str, at: float, line: Line, **more: Any) -> Step:
        thread = self._threads.setdefault(line.thread, len(self._threads))
        step = {
            "kind": kind,
            "name": name,
            "at": at,
            "seconds": None,
            "state": "moment",
            "depth": len(self._open.get(line.thread, ())),
            "thread": thread,
            "where": line.where,
            "file": "",
            "importing": [],
            "is_guards": False,
            "mapped": [],
            **more,
        }
        self._steps.append(step)
        return step

    def _mapped(self, stack: list[Step], event: Mapped, at: float, line: Line) -> None:
        loads = [step for step in stack if step["kind"] in _LOADS and event.by]
        into = next((step for step in reversed(loads) if step["file"] == event.by), None)
        if into is None:  # noted when the next load began, or an import ended
            into = stack[-1] if stack else None
        if into is None:
            last = self._steps[-1] if self._steps else None
            if last is not None and last["kind"] in ("start", "unseen"):
                into = last
            else:
                kind = "unseen" if self._steps else "start"
                into = self._step(kind, "", at, line)
        into["mapped"].append({"file": event.file})


def _close(stack: list[Step], kinds: tuple[str, ...], name: str, at: float, state: str) -> None:
    """End the innermost open step of that name, and what it has left open."""
    for index in range(len(stack) - 1, -1, -1):
        step = stack[index]
        if step["kind"] in kinds and name in (step["name"], step.get("file")):
            step["seconds"], step["state"] = _rounded(at - step["at"]), state
            del stack[index:]
            return


def _who(importing: tuple[str, ...]) -> dict[str, Any]:
    """Return whose code was running: the modules, and True if it was for the guard itself."""
    is_guards = any(name.partition(".")[0] == "cudaguard" for name in importing)
    return {"importing": list(importing), "is_guards": is_guards}


def _rounded(seconds: float) -> float:
    return round(seconds, 6)


def native_only(process: Mapping[str, Any]) -> dict[str, Any]:
    """Return a process without the imports in which nothing was mapped and nothing happened."""
    kept: list[Step] = []
    # From behind: what lies in an import comes after it, deeper.
    wanted: dict[int, int] = {}  # by thread: the depth of the last step that is kept
    for step in reversed(process["steps"]):
        thread, depth = step["thread"], step["depth"]
        has_inner = wanted.get(thread, -1) > depth
        is_plain = step["kind"] == "import" and step["state"] == "done" and not step["mapped"]
        if not is_plain or has_inner:
            kept.append(step)
            wanted[thread] = depth
    return {**process, "steps": kept[::-1]}


def libraries_of(process: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what a process has mapped, in the order in which it was noted."""
    for step in process["steps"]:
        yield from step["mapped"]


def owner_of(library: Mapping[str, Any]) -> str:
    """Return whose a mapped file is: a distribution, ``nvidia``, ``Python``, ``system``, or else.

    Args:
        library: Its entry in the document.
    """
    package, file = library["package"].partition(" ")[0], library["file"]
    if not package:  # nobody has recorded it, or it was never mapped
        folder = file.partition("-packages/")[2].partition("/")
        package = folder[0].partition(".libs")[0] if folder[1] else ""
    if package:
        return "nvidia" if package.startswith("nvidia") else package
    name = file.rpartition("/")[2]
    if "/lib-dynload/" in file or name.startswith(("libpython", "python")):
        return "Python"
    return "system" if file.startswith(_SYSTEM) else "other files"


def rows_of(process: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the steps of a process for a reader: what belongs together is one row.

    A row is a step with ``owner`` (whose library was loaded), ``names`` and ``files`` (of the
    extension modules, where several that brought nothing else were loaded in a row), ``brought``
    (the libraries that came besides), ``spans`` (when each began and how long it took) and
    ``until`` (when it ended).
    """
    rows: list[dict[str, Any]] = []
    owners: dict[str, str] = {}  # of what is there, by all of its names
    for step in process["steps"]:
        row = _row(step, owners)
        last = rows[-1] if rows else None
        if last is not None and last["kind"] == "cuda" and _says_the_same(last, row):
            continue
        if last is not None and _is_small(row) and _is_small(last) and _are_alike(last, row):
            rows[-1] = _joined(last, row)
        else:
            rows.append(row)
        for library in step["mapped"]:
            owners.update(dict.fromkeys(_names_of(library), owner_of(library)))
    return rows


def _says_the_same(event: Step, finding: Step) -> bool:
    is_of_cuda = finding["kind"] == "finding" and finding["id"] in _OF_CUDA
    return bool(is_of_cuda and all(finding[key] == event[key] for key in ("where", "thread")))


def _row(step: Step, owners: Mapping[str, str]) -> dict[str, Any]:
    own = _own_library(step)
    is_alone = step["kind"] in _LOADS and own is None
    return {
        **step,
        "owner": _owner(step, own, owners),
        "names": [step["name"]],
        "files": [step["file"]],
        "brought": [lib["name"] for lib in step["mapped"] if lib is not own],
        "is_known": is_alone and step["state"] == "done" and not step["mapped"],
        "spans": [[step["at"], step["seconds"]]],
        "until": None if step["seconds"] is None else _rounded(step["at"] + step["seconds"]),
    }


def _owner(step: Step, own: Mapping[str, Any] | None, owners: Mapping[str, str]) -> str:
    if own is not None:
        return owner_of(own)
    if step["file"]:
        known = owners.get(step["file"].rpartition("/")[2])
        return known or owner_of({"package": "", "file": step["file"]})
    return "system" if step["kind"] in ("start", "unseen") else ""


def _own_library(step: Step) -> Mapping[str, Any] | None:
    """Return the entry of the library that a step was the loading of; None if it was there."""
    name = step["file"].rpartition("/")[2]
    mapped: list[dict[str, Any]] = step["mapped"]
    for library in mapped:
        if step["file"] and step["file"] == library["file"]:
            return library
    return next((lib for lib in mapped if name and name in _names_of(lib)), None)


def _names_of(library: Mapping[str, Any]) -> tuple[str, str]:
    return library["name"], library["file"].rpartition("/")[2]


def _is_small(row: Step) -> bool:
    """Return True if a row may be joined with others: it mapped nothing to speak of but its own."""
    if row["state"] != "done" or row["kind"] not in _LOADS:
        return False
    return row["kind"] == "library" or not row["brought"] or row["owner"] == "Python"


def _are_alike(one: Step, other: Step) -> bool:
    if one["kind"] == "library" and one["where"] != other["where"]:
        return False  # not one after the other in a loop
    return all(one[key] == other[key] for key in ("kind", "owner", "depth", "thread", "is_guards"))


def _joined(one: Step, other: Step) -> Step:
    return {
        **one,
        **{key: [*one[key], *other[key]] for key in _LISTS},
        "seconds": _rounded(one["seconds"] + other["seconds"]),
        "is_known": one["is_known"] and other["is_known"],
        "until": other["until"],
    }


def summary_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a trace comes down to.

    Args:
        document: The trace; its ``summary`` is not looked at.
    """
    processes = document["processes"]
    files = {lib["file"]: lib["bytes"] or 0 for p in processes for lib in libraries_of(p)}
    steps = [step for process in processes for step in process["steps"]]
    imports = [step for step in steps if step["kind"] == "import"]
    first = next((s for s in steps if s["kind"] == "cuda" and s["what"] == "initialized"), None)
    main = processes[0]["steps"] if processes else []
    died = document["ended"]["kind"] != "exited"
    running = [step for step in main if step["state"] == "unfinished"] if died else []
    return {
        "libraries": len(files),
        "bytes": sum(files.values()),
        "imports": len(imports),
        "initializer": first["actor"] or "" if first is not None else None,
        "findings": len([s for s in steps if s["kind"] == "finding"]),
        "died_in": running[-1]["name"] if running else "",
    }
