"""Show when a program maps which native library, which import brings it, and who initializes CUDA.

The program runs as under ``cudaguard run``, by default with the guard only looking on. What it
prints and how it ends stays as it is: the trace goes to standard error, or to files. It is written
down as things happen, so there is one of a program that crashes as well.
"""

from __future__ import annotations

import os
import shlex
import sys

from cudaguard.core.findings import counted
from cudaguard.core.record import JOURNAL, TRACE_VARIABLE
from cudaguard.elf.library_facts import distributions_of, read_library
from cudaguard.features.cuda_init.findings import CONTEXT, INITIALIZED
from cudaguard.features.symbol_scope.findings import INTERPOSED
from cudaguard.files import write_text
from cudaguard.files.layout import MOST, Page
from cudaguard.model import TYPE_CHECKING
from cudaguard.system.facts import Facts
from cudaguard.system.processes import shell_status, signal_name
from cudaguard.system.runtimes import version_of
from cudaguard.tools import common
from cudaguard.tools.run import launch, record
from cudaguard.tools.run.story import CRASHES, Sources, add_frame, lines_of

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from cudaguard.tools.run.launch import Launch
    from cudaguard.tools.run.record import Line
    from cudaguard.tools.run.supervise import ProgramEnd

    Step = dict[str, Any]

_OF_FILES = "standard output belongs to the program: name a file with -o FILE"


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "-o", "--output", metavar="FILE", action="append", default=[],
        help="write the trace to FILE, as its suffix says: .json, else text; may be given "
        "several times",
    )  # fmt: skip
    parser.add_argument(
        "--format", choices=common.FORMATS,
        help="write FILE in this format, whatever its suffix (default without FILE: text)",
    )  # fmt: skip
    parser.add_argument(
        "--mode", default="observe",
        help="of the guard meanwhile: observe (default) changes nothing, fix shows what it repairs",
    )  # fmt: skip
    launch.configure(parser, "trace")
    common.add_verbose(parser, "show all imports and libraries", config=True)


def execute(args: Namespace) -> int:
    """Trace the program and end as it does."""
    from cudaguard.tools.run.supervise import IS_SUPPORTED, run_recorded

    if not IS_SUPPORTED:
        raise common.UsageError("it is done on Linux only")
    if args.format == "json" and not args.output:
        raise common.UsageError(f"--format json: {_OF_FILES}")
    if "-" in args.output:
        raise common.UsageError(f"-o -: {_OF_FILES}")
    found, environment = launch.prepared(args, args.output)
    environment[TRACE_VARIABLE] = "1"
    kept = record.RunRecord()

    def tell(ended: ProgramEnd) -> None:
        if missing := kept.problem():
            common.note("trace", f"libraries may be missing from this trace: {missing}")
        is_whole = args.with_arguments or not args.output
        document = document_of(found, ended, kept.folder, with_arguments=is_whole)
        shared = common.shareable(document)
        if not args.output:
            text = common.laid_out(document, write, sys.stderr, verbose=args.verbose)
            common.say(f"{text}\n", sys.stderr)
        for path in args.output:
            text = common.json_text(shared)
            suffix = "json" if path.lower().endswith(".json") else "text"
            if (args.format or suffix) == "text":
                text = common.laid_out(shared, write, verbose=args.verbose)
            write_text(path, f"{text}\n")

    return run_recorded("trace", found.command, environment, kept, tell, timeout=args.timeout)


_LOADS = ("extension", "library")  # kinds of steps by which Python code has something loaded
_STEPS = {"import": ("import",), "load": _LOADS}  # what is over -> kinds of steps
_OF_CUDA = (INITIALIZED.id, CONTEXT.id)  # findings that say what an event of the driver says

# --- the document ---------------------------------------------------------------------------------


def document_of(
    found: Launch, ended: ProgramEnd, folder: str, *, with_arguments: bool = True
) -> dict[str, Any]:
    """Return the trace as JSON-ready data, without the number of the schema.

    Without arguments it names programs alone, and shows no lines of source.
    """
    if not with_arguments:
        found = found._replace(program=found.program.without_arguments())
    processes = traced_processes(record.read_events(os.path.join(folder, JOURNAL)), ended.pid)
    steps = [step for process in processes for step in process["steps"]]
    libraries = [library for step in steps for library in step["mapped"]]
    _describe_libraries(libraries)
    for process in processes:
        if not with_arguments:
            program = launch.program_of(process["program"])
            process["program"] = list(program.without_arguments().words)
        process["is_program"] = process["pid"] == ended.pid
    number = -ended.status if ended.status < 0 and not ended.is_late else 0
    status = common.TIMEOUT if ended.is_late else shell_status(ended.status)
    document = {
        "tool": "trace",
        "python": Facts().python,
        "platform": f"{sys.platform} {Facts().machine}",
        "program": list(found.program.words),
        "mode": processes[0]["mode"] if processes else "",
        "seconds": round(ended.seconds, 3),
        "ended": {
            "kind": "timeout" if ended.is_late else "signal" if number else "exited",
            "status": status,
            "signal": signal_name(number) if number else None,
            "stack": _stack(found, ended, folder, shows_lines=with_arguments),
        },
        "command": "",
        "processes": processes,
    }
    if ended.is_late or (number in CRASHES and number not in ended.sent):
        limit = ("--timeout", f"{max(1, round(ended.seconds))}") if ended.is_late else ()
        document["command"] = shlex.join(("cudaguard", "run", *limit, *found.program.words))
    files = {library["file"]: library["bytes"] or 0 for library in libraries}
    first = next((s for s in steps if s["kind"] == "cuda" and s["what"] == "initialized"), None)
    main = processes[0]["steps"] if processes and (number or ended.is_late) else []
    running = [step["name"] for step in main if step["state"] == "unfinished"]
    document["summary"] = {
        "libraries": len(files),
        "bytes": sum(files.values()),
        "imports": sum(step["kind"] == "import" for step in steps),
        "initializer": first["actor"] or "" if first is not None else None,
        "findings": sum(step["kind"] == "finding" for step in steps),
        "died_in": running[-1] if running else "",
    }
    return document


def _stack(found: Launch, ended: ProgramEnd, folder: str, *, shows_lines: bool) -> list[str]:
    """Return where the program was when it died, or its time was up: a line for each frame."""
    if ended.status >= 0 and not ended.is_late:
        return []
    dumps = record.faults_in(folder).get(ended.pid, [])
    telling = [dump for dump in dumps if bool(dump.what) != ended.is_late]
    sources = Sources(found.program, (), shows_lines=shows_lines)
    return lines_of(sources.frames(telling[-1].frames)) if telling else []


def _describe_libraries(entries: Sequence[dict[str, Any]]) -> None:
    """Add what the files are to the libraries."""
    packages = distributions_of(dict.fromkeys(entry["file"] for entry in entries))
    known: dict[str, dict[str, Any]] = {}
    for entry in entries:
        path = entry["file"]
        if path not in known:
            file = read_library(path)
            known[path] = {
                "name": file.soname or os.path.basename(path),
                "package": " and ".join(packages.get(path, ())),
                "version": ".".join(map(str, version_of(path, file.soname))),
                "build": file.build,
                "bytes": file.size,
            }
        entry.update(known[path])


# --- processes and their steps --------------------------------------------------------------------


def traced_processes(lines: Iterable[Line], pid: int) -> list[dict[str, Any]]:
    """Return the processes of a program, that of `pid` first, with their steps as they began."""
    found: dict[int, list[_Process]] = {}
    began = 0.0
    for line in lines:
        began = began or line.time
        known = found.setdefault(line.pid, [])
        # One process may run several programs, one after the other (exec).
        if line.kind == "start" or not known:
            known.append(_Process(line, began))
        known[-1].take(line)
    processes = [process.document for known in found.values() for process in known]
    return sorted(processes, key=lambda process: (process["pid"] != pid, process["began"]))


class _Process:
    """Puts the steps of one process together."""

    def __init__(self, first: Line, zero: float) -> None:
        is_start = first.kind == "start"
        self._zero = zero
        self._steps: list[Step] = []
        self._open: dict[int, list[Step]] = {}  # by thread, outermost first
        self._threads: dict[int, int] = {}
        self.document: dict[str, Any] = {
            "pid": first.pid,
            "parent": (first.number("parent") or None) if is_start else None,
            "program": list(first.texts("program")) if is_start else [],
            "mode": "",
            "began": round(first.time - zero, 6),
            "ended": None,
            "steps": self._steps,
        }

    def take(self, line: Line) -> None:
        """Take in the next line."""
        kind, at = line.kind, round(line.time - self._zero, 6)
        stack, done = self._open.setdefault(line.thread, []), line.repaired()
        if kind in ("import", "mapping"):
            if kind != "import":
                kind = "extension" if line.module else "library"
            importing = line.texts("importing")
            is_guards = any(name.partition(".")[0] == "cudaguard" for name in importing)
            more = {"file": line.file, "importing": list(importing), "is_guards": is_guards}
            what = line.module or line.file
            stack.append(self._step(kind, what, at, line, state="unfinished", **more))
        elif kind in record.OVER:
            kinds = [step for what in record.OVER[kind] for step in _STEPS[what]]
            for index, step in reversed([*enumerate(stack)]):
                if step["kind"] in kinds and line.name in (step["name"], step["file"]):
                    step["seconds"] = round(at - step["at"], 6)
                    step["state"] = "failed" if kind == "failed" else "done"
                    del stack[index:]  # the innermost of that name, and what it has left open
                    break
        elif kind == "mapped":
            self._step_that_mapped(stack, at, line)["mapped"].append({"file": line.file})
        elif kind == "cuda":
            said = {"what": line.text("kind"), "actor": line.text("actor"), "how": line.text("how")}
            self._step("cuda", line.name, at, line, **said, device=line.number("device"))
        elif kind == "finding":
            finding = line.finding()
            keys = ("id", "severity", "evidence", "consequence", "remedy")
            details = {key: getattr(finding, key) for key in keys}
            self._step("finding", finding.what, at, line, **details)
        elif done is not None:
            self._step("repair", done.words, at, line)
        elif kind == "error":
            self._step("error", line.name, at, line)
        elif kind in ("install", "uninstall"):
            self.document["mode"] = line.name
        elif kind == "end":
            self.document["ended"] = at

    def _step(self, kind: str, name: str, at: float, line: Line, **more: Any) -> Step:
        step = {
            "kind": kind,
            "name": name,
            "at": at,
            "seconds": None,
            "state": "moment",
            "depth": len(self._open.get(line.thread, ())),
            "thread": self._threads.setdefault(line.thread, len(self._threads)),
            "where": line.where,
            "file": "",
            "importing": [],
            "is_guards": False,
            "mapped": [],
            **more,
        }
        self._steps.append(step)
        return step

    def _step_that_mapped(self, stack: list[Step], at: float, line: Line) -> Step:
        by = line.text("by")  # what the loader was asked for
        for step in reversed(stack):
            if by and step["kind"] in _LOADS and step["file"] == by:
                return step
        if stack:  # noted when the next load began, or an import ended
            return stack[-1]
        if self._steps and self._steps[-1]["kind"] in ("start", "unseen"):
            return self._steps[-1]
        return self._step("unseen" if self._steps else "start", "", at, line)


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


# --- the text: a line per import, load and event, indented by what happened inside what -----------

_DEEPEST = 40  # levels of indentation
_LONGEST = 200  # characters of what was run
_MOST = 8  # names of modules on a line
_EVENTS = {
    "cuda": ("●", "green"),
    "finding": ("▲", "yellow"),
    "repair": ("✓", "cyan"),
    "error": ("✗", "red"),
}
_WITHOUT_NAME = {"start": "at start", "unseen": "past the importer"}
_STATES = {"failed": "failed", "unfinished": "never ended"}


def write(document: Mapping[str, Any], page: Page) -> None:
    """Write the trace as text; a page that is not verbose gets no imports of Python code alone."""
    page.add(f"Native libraries of: {_command_line(document['program'])}", style="bold")
    for process in document["processes"]:
        if len(document["processes"]) > 1:
            by = f", started by {process['parent']}" if process["parent"] else ""
            what = f"{by}: {_command_line(process['program']) or 'a fork'}"
            title = ": the program" if process["is_program"] else what
            page.blank()
            page.add(f"process {process['pid']}{title}", style="bold")
        page.block("  at/s  took/s", style="dim")
        for row in rows_of(process if page.verbose else native_only(process)):
            text, style = _line(row, page)
            depth = min(row["depth"], page.width // 6 if page.width else _DEEPEST)
            took = " " * 6 if row["seconds"] is None else f"{row['seconds']:6.3f}"
            lead = f"{row['at']:6.3f}  {took}  {'  ' * depth}"
            page.add(text, lead=lead, style=style, hanging=len(lead) + 2)
        found = [step for step in process["steps"] if step.get("id") == INTERPOSED.id]
        rows = dict.fromkeys(row for step in found for row in (step["name"], *step["evidence"]))
        page.items("symbols", [*rows], 0, 2 * MOST)
    if not page.verbose:
        page.add("--verbose shows all imports and libraries", style="dim")
    summary = document["summary"]
    libraries, actor = counted(summary["libraries"], "libraries"), summary["initializer"]
    parts = [f"{libraries} ({summary['bytes'] / (1 << 20):,.0f} MB) in {document['seconds']:.2f} s"]
    by = f"CUDA was initialized by {actor or 'the program, between two imports'}"
    parts.append("nothing initialized CUDA" if actor is None else by)
    if summary["findings"]:
        parts.append(counted(summary["findings"], "findings"))
    page.add("; ".join(parts), style="bold")
    ended, where = document["ended"], os.path.basename(document["summary"]["died_in"])
    inside = f" in {where}" if where else ""
    if ended["kind"] == "signal":
        page.add(f"✗ crashed ({ended['signal']}){inside}", style="red")
    elif ended["kind"] == "timeout":
        page.add(f"✗ timed out{inside}", style="red")
    elif ended["status"]:
        page.add(f"✗ exit status {ended['status']}", style="red")
    for frame in ended["stack"]:
        add_frame(page, frame, 4)
    page.labeled("run", document["command"], 0)


def _command_line(program: Sequence[str]) -> str:
    text = " ".join(" ".join(program).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _line(row: Step, page: Page) -> tuple[str, str]:
    """Return the text of a row, and its style."""
    kind, names, state = row["kind"], row["names"], _STATES.get(row["state"], "")
    folder, place = os.path.split(row["where"])
    if place.startswith("__init__."):  # as in torch/__init__.py:3
        place = f"{os.path.basename(folder)}/{place}"
    place = place and f" ({place})"
    if kind in _EVENTS:
        sign, style = _EVENTS[kind]
        id = f"{row['id']} " if kind == "finding" else ""
        return f"{sign} {id}{row['name']}{place}", style
    if len(names) > 1:
        what = "extension modules" if kind == "extension" else "libraries by dlopen"
        listed = page.listed([*map(os.path.basename, names)], _MOST, "")
        text = f"{len(names)} {what} ({listed})"
    elif kind == "import":
        text = f"import {row['name']}{place}"
    elif kind == "library":
        text = f"dlopen {os.path.basename(row['name'])}{place}"
    else:
        text = f"{_WITHOUT_NAME.get(kind) or row['name']}{place}"
    if row["brought"]:
        text += f" + {page.listed(row['brought'], option='')}"
    if kind in _LOADS and row["state"] == "done" and not row["mapped"]:
        text += " (already loaded)"
    if row["is_guards"]:
        text += " (for cudaguard itself)"
    return (f"{text} ← {state}", "red") if state else (text, "" if row["mapped"] else "dim")


def rows_of(process: Mapping[str, Any]) -> list[Step]:
    """Return the steps of a process for a reader: loads in a row that brought nothing are one row.

    A row is a step with ``names`` (of all that it stands for) and ``brought`` (the libraries that
    came besides).
    """
    rows: list[Step] = []
    for step in process["steps"]:
        name, mapped = os.path.basename(step["file"]), step["mapped"]
        # What the step was the loading of; the rest was mapped with it.
        own = [lib for lib in mapped if name in (lib["name"], os.path.basename(lib["file"]))][:1]
        brought = [lib["name"] for lib in mapped if lib not in own]
        row = {**step, "names": [step["name"]], "brought": brought}
        last = rows[-1] if rows else row
        if last["kind"] == "cuda" and row["kind"] == "finding" and row["id"] in _OF_CUDA:
            continue
        keys = ["kind", "depth", "thread", "is_guards"]
        keys += ["where"] * (row["kind"] == "library")  # one after the other in a loop
        is_alike = _is_small(last) and _is_small(row) and all(last[k] == row[k] for k in keys)
        if last is row or not is_alike:
            rows.append(row)
            continue
        for key in ("names", "mapped"):
            last[key] = [*last[key], *row[key]]
        last["seconds"] = round(last["seconds"] + row["seconds"], 6)
    return rows


def _is_small(row: Step) -> bool:
    return row["kind"] in _LOADS and row["state"] == "done" and not row["brought"]
