"""The document of a trace: the steps of the journal, and what the mapped files are."""

from __future__ import annotations

import os
import shlex
import sys

from cudaguard.core.journal_reader import read_events
from cudaguard.core.record import JOURNAL
from cudaguard.elf.library_facts import distributions_of, read_library
from cudaguard.elf.library_version import version_of
from cudaguard.system.facts import Facts
from cudaguard.system.redact import redacted_arguments
from cudaguard.system.runtimes import runtime_of, stem_of
from cudaguard.tools.common import TIMEOUT
from cudaguard.tools.run.messages import signal_name
from cudaguard.tools.trace.timeline import libraries_of, processes_of, summary_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from cudaguard.tools.run.ending import ProgramEnd
    from cudaguard.tools.run.launch import Launch


def document_of(launch: Launch, ended: ProgramEnd, folder: str) -> dict[str, Any]:
    """Return the trace as JSON-ready data, without the number of the schema.

    Args:
        launch: What was run.
        ended: How it ended.
        folder: Where its record is.
    """
    import cudaguard

    processes = processes_of(read_events(os.path.join(folder, JOURNAL)), ended.pid)
    _complete(library for process in processes for library in libraries_of(process))
    for process in processes:
        process["program"] = redacted_arguments(process["program"])
        process["is_program"] = process["pid"] == ended.pid
    name = signal_name(-ended.status) if ended.status < 0 and not ended.is_late else None
    document = {
        "tool": "trace",
        "version": cudaguard.__version__,
        "python": Facts().python,
        "platform": f"{sys.platform} {Facts().machine}",
        "program": redacted_arguments(launch.program.words),
        "mode": processes[0]["mode"] if processes else "",
        "seconds": round(ended.seconds, 3),
        "ended": {
            "kind": "timeout" if ended.is_late else "signal" if name else "exited",
            "status": TIMEOUT if ended.is_late else 128 - ended.status if name else ended.status,
            "signal": name,
            "stack": _stack(launch, ended, folder),
        },
        "summary": {},
        "command": _next_command(launch, ended),
        "processes": processes,
    }
    document["summary"] = summary_of(document)
    home = os.path.expanduser("~")
    return _without_home(document, home) if home not in ("~", "/", "") else document


def _next_command(launch: Launch, ended: ProgramEnd) -> str:
    """Return the command whose report says why the program died; empty if it did not."""
    from cudaguard.tools.run.crash import CRASHES

    number = -ended.status
    has_crashed = number in CRASHES and number not in ended.sent
    if not (ended.is_late or has_crashed):
        return ""
    limit = ("--timeout", f"{max(1, round(ended.seconds))}") if ended.is_late else ()
    return shlex.join(("cudaguard", "run", *limit, *redacted_arguments(launch.program.words)))


def _stack(launch: Launch, ended: ProgramEnd, folder: str) -> list[str]:
    """Return where the program was when it died, or its time was up: a line for each frame."""
    from cudaguard.tools.run.faults import faults_in
    from cudaguard.tools.run.sources import Sources
    from cudaguard.tools.run.stacks import lines_of

    if ended.status >= 0 and not ended.is_late:
        return []
    dumps = faults_in(folder).get(ended.pid, [])
    found = [dump for dump in dumps if bool(dump.what) != ended.is_late]
    return lines_of(Sources(launch.program, "").frames(found[-1].frames)) if found else []


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


def _without_home(value: Any, home: str) -> Any:
    """Return the document with the home directory as ``~``: it may go to other people."""
    if isinstance(value, str):
        return value.replace(home + os.sep, "~" + os.sep)
    if isinstance(value, list):
        return [_without_home(part, home) for part in value]
    if isinstance(value, dict):
        return {key: _without_home(part, home) for key, part in value.items()}
    return value
