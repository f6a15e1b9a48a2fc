"""Shows what the processes below ``cudaguard run`` are doing, upon Ctrl-Backslash: they go on."""

from __future__ import annotations

import os
import sys

from cudaguard.core.journal_reader import read_events
from cudaguard.core.record import FAULTS, JOURNAL
from cudaguard.files.text import printable_data
from cudaguard.tools.common import say
from cudaguard.tools.layout import Page
from cudaguard.tools.run import messages as wording
from cudaguard.tools.run.deaths import processes_of
from cudaguard.tools.run.faults import read_faults
from cudaguard.tools.run.sources import Sources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cudaguard.tools.run.program import Program

_MOST = 1 << 23  # bytes of the journal


class Look:
    """Looks at what processes have written down since it looked last.

    Args:
        program: What is run, for the lines of its source.
        folder: The record; may be empty.
    """

    def __init__(self, program: Program, folder: str) -> None:
        self._program = program
        self._folder = folder
        self._known: dict[str, int] = {}

    def show(self) -> bool:
        """Write the stacks to standard error; False if there is nothing new."""
        found = self._new()
        if found:
            page = Page(sys.stderr)
            wording.write_stacks(printable_data(found), page)
            say(f"\n{page}\n", sys.stderr)
        return bool(found)

    def _new(self) -> list[dict[str, Any]]:
        try:
            names = sorted(name for name in os.listdir(self._folder) if name.startswith(FAULTS))
        except OSError:
            return []
        journal = read_events(os.path.join(self._folder, JOURNAL), _MOST)
        processes = processes_of(journal, {})
        found = []
        for name in names:
            pid, path = name[len(FAULTS) :], os.path.join(self._folder, name)
            dumps = [dump for dump in read_faults(path, self._known.get(name, 0)) if not dump.what]
            try:
                self._known[name] = os.lstat(path).st_size
            except OSError:
                continue
            if dumps and pid.isdecimal():
                process = processes.get(int(pid))
                sources = Sources(self._program, "")
                found.append({
                    "pid": int(pid),
                    "rank": process.rank if process is not None else None,
                    "ranks": process.ranks if process is not None else 0,
                    "stack": sources.frames(dumps[-1].frames),
                    "threads": sources.threads(dumps[-1]),
                })  # fmt: skip
        return found
