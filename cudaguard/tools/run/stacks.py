"""Python stacks of the program: its sources, the words for them, and a look while it runs.

All threads, the standard library folded, equal stacks once.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress

from cudaguard.core.journal_reader import read_events
from cudaguard.core.record import JOURNAL
from cudaguard.files import LARGEST, read_bytes
from cudaguard.files.text import printable_data
from cudaguard.system.source import imports_of_file
from cudaguard.tools.common import say
from cudaguard.tools.layout import Page
from cudaguard.tools.run.launch import parsed as parsed_words
from cudaguard.tools.run.record import faults_in
from cudaguard.tools.run.story import processes_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from cudaguard.tools.run.launch import Program
    from cudaguard.tools.run.record import FaultDump, Frames
    from cudaguard.tools.run.story import Process

    Frame = dict[str, Any]

_LIBRARY = re.compile(r"/lib\w*/(?:python|pypy)3[.\d]*t?/")
_BETWEEN = ("cudaguard", "importlib")
_FROZEN = re.compile(r"^<frozen (.+)>$")
_GUARD = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
STACK = "Python stack"
_INDENT = 2
_MOST = 1 << 23  # bytes of the journal


class Sources:
    """Frames as the report has them; those of the program's own files with their lines.

    No line of another file is shown: a process that has given up its rights can still write to
    what faulthandler has open, and name a file there that it may not read.

    Args:
        program: The program.
        outermost: The file of its outermost frame, which is that of ``-m MODULE``: the module is
            not imported to find it.
        processes: Those of the run; the scripts that they were started with are the program's too.
        shows_lines: False for a report that others may read.
    """

    def __init__(
        self,
        program: Program,
        outermost: str,
        processes: Iterable[Process] = (),
        *,
        shows_lines: bool = True,
    ) -> None:
        self._program = program
        is_module = program.words[:1] == ("-m",)
        self.script = program.script or (outermost if is_module else "")
        started = {process.program for process in processes}
        scripts = (self.script, *(parsed_words(words)[0].script for words in started))
        self._own = {os.path.abspath(script) for script in scripts if script and shows_lines}
        self._lines: dict[str, list[str]] = {}
        if shows_lines and program.words[:1] == ("-c",):
            self._lines["<string>"] = program.words[1].splitlines()

    def imports_up_to(self, line: int) -> list[str]:
        """Return the packages that the program imports up to a line; none if it is in no file."""
        imports = imports_of_file(self.script)
        found = [one.module.partition(".")[0] for one in imports if one.line <= line]
        return list(dict.fromkeys(found))

    def frames(self, frames: Frames) -> list[dict[str, Any]]:
        """Return frames as the report has them."""
        return [self._frame(*frame) for frame in frames]

    def threads(self, fault: FaultDump) -> list[dict[str, Any]]:
        """Return the threads beside the one concerned as the report has them."""
        return [{"name": other.name, "stack": self.frames(other.frames)} for other in fault.others]

    def _frame(self, file: str, line: int, function: str) -> dict[str, Any]:
        lines = self._lines_of(file)[line - 1 : line] if line > 0 else []
        return {
            "file": file,
            "line": line,
            "function": function,
            "source": "".join(lines).strip(),
            "is_program": self._is_program(file),
        }

    def _is_program(self, file: str) -> bool:
        if not self.script:
            return file == "<string>" and self._program.words[:1] == ("-c",)
        return os.path.abspath(file) == os.path.abspath(self.script)

    def _lines_of(self, file: str) -> list[str]:
        """Return the lines of a source of the program's, none if it cannot be read."""
        if file not in self._lines:
            text = b""
            if os.path.abspath(file) in self._own:
                with suppress(OSError, ValueError):
                    text = read_bytes(file, LARGEST)
            self._lines[file] = text.decode("utf-8", "replace").splitlines()
        return self._lines[file]


# --- words --------------------------------------------------------------------------


def short(file: str) -> str:
    """Return a path without the folder that all packages, or Python's own modules, are in."""
    file = file.rpartition("-packages/")[2]
    found = _LIBRARY.search(file)
    return file[found.end() :] if found else file


def library_module(file: str) -> str:
    """Return the module of the standard library that a source is, ``cudaguard`` for ours, or ""."""
    if file.startswith(_GUARD):
        return "cudaguard"
    frozen = _FROZEN.match(file)
    name = frozen[1] if frozen else _name_in_library(file)
    return "importlib" if name.startswith(("importlib", "_frozen_importlib")) else name


def _name_in_library(file: str) -> str:
    found = None if "-packages/" in file else _LIBRARY.search(file)
    if found is None or not file.endswith(".py"):
        return ""
    parts = file[found.end() : -len(".py")].split("/")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_extension_of_python(file: str) -> bool:
    """Return True if a library is an extension module of the standard library."""
    return "/lib-dynload/" in file


def lines_of(stack: Sequence[Frame]) -> list[str]:
    """Return a line for each frame, innermost first; frames of the standard library in one.

    Those of the import machinery and our own are left out, as Python's tracebacks do.
    """
    lines: list[str] = []
    folded: dict[str, None] = {}
    count = 0
    for frame in (*stack, None):
        module = library_module(frame["file"]) if frame is not None else ""
        if module in _BETWEEN:
            continue
        if frame is not None and module and lines:
            folded[module] = None
            count += 1
            continue
        if count:
            lines.append(f"({count} frame{'s'[: count > 1]} of {', '.join(folded)})")
            folded, count = {}, 0
        if frame is not None:
            lines.append(line_of(frame))
    return lines


def line_of(frame: Frame) -> str:
    """Return one frame as ``file:line in function: source``."""
    source = f": {frame['source']}" if frame["source"] else ""
    return f"{short(frame['file'])}:{frame['line']} in {frame['function']}{source}"


def add_frame(page: Page, frame: str, indent: int) -> None:
    """Add one line of a stack; its source is not broken."""
    where, colon, source = frame.partition(": ")
    page.add(f"{where}{colon.strip()}", indent, whole=source)


def _threads(found: Sequence[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """Return a heading and lines for the other threads; those with equal stacks share them."""
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for thread in found:
        alike.setdefault(tuple(lines_of(thread["stack"])), []).append(thread)
    return [(_heading(group), list(lines)) for lines, group in alike.items()]


def add_stacks(page: Page, label: str, process: dict[str, Any]) -> None:
    """Add the frames of the thread concerned, innermost first, and those of the other threads."""
    stacks = [(label, lines_of(process["stack"])), *_threads(process["threads"])]
    for number, (heading, frames) in enumerate(stacks):
        if frames:
            page.add(f"{heading}{', innermost call first' if not number else ''}:", _INDENT)
            for frame in frames:
                add_frame(page, frame, 2 * _INDENT)
        elif not number and label != STACK:
            page.add(heading, _INDENT)


def name_of(process: dict[str, Any]) -> str:
    """Return what a process is called: by its rank, if it has one."""
    if process["rank"] is None:
        return f"process {process['pid']}"
    of = f" of {process['ranks']}" if process.get("ranks") else ""
    return f"rank {process['rank']}{of} (process {process['pid']})"


def _heading(group: Sequence[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(thread["name"] for thread in group if thread["name"]))
    named = f" ({', '.join(names[:3])})" if names else ""
    if len(group) > 1:
        return f"{len(group)} other threads{named}"
    return f"another thread{named}"


# --- while it runs ------------------------------------------------------------------


class NewStacks:
    """Looks at what processes have written down since it looked last.

    Args:
        program: What is run, for the lines of its source.
        folder: The record; may be empty.
    """

    def __init__(self, program: Program, folder: str) -> None:
        self._program = program
        self._folder = folder
        self._known: dict[int, float] = {}

    def show(self) -> bool:
        """Write the stacks to standard error; False if there is nothing new."""
        found = self._new()
        if found:
            page = Page(sys.stderr)
            _write(printable_data(found), page)
            say(f"\n{page}\n", sys.stderr)
        return bool(found)

    def _new(self) -> list[dict[str, Any]]:
        processes = processes_of(read_events(os.path.join(self._folder, JOURNAL), _MOST), {})
        sources = Sources(self._program, "", processes.values())
        found = []
        for pid, dumps in sorted(faults_in(self._folder).items()):
            asked = [dump for dump in dumps if not dump.what][-1:]
            if asked and self._known.get(pid) != asked[0].time:
                self._known[pid] = asked[0].time
                process = processes.get(pid)
                found.append({
                    "pid": pid,
                    "rank": process.rank if process is not None else None,
                    "ranks": process.ranks if process is not None else 0,
                    "stack": sources.frames(asked[0].frames),
                    "threads": sources.threads(asked[0]),
                })  # fmt: skip
        return found


def _write(processes: Sequence[dict[str, Any]], page: Page) -> None:
    """Write where the processes are, upon Ctrl-Backslash.

    Args:
        processes: Each with its stack and threads.
        page: Where to.
    """
    page.add("cudaguard run: the program goes on; Ctrl-\\ once more ends it.", style="bold")
    for process in processes:
        add_stacks(page, name_of(process), process)
