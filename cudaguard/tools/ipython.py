"""The IPython and Jupyter extension: ``%load_ext cudaguard``, ``%unload_ext``, ``%cudaguard``."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cudaguard.tools.notebook_table import NotebookTable

MAGIC = "cudaguard"


def load_ipython_extension(ipython: Any) -> None:
    """Put the guard up for the rest of the session, and say what is too late for it.

    Args:
        ipython: The shell, which calls this.
    """
    from cudaguard.api import install, status
    from cudaguard.core.lifecycle import activation
    from cudaguard.core.loader import is_imported
    from cudaguard.files.text import printable_lines
    from cudaguard.tools.notebook_messages import OFF, loaded

    reporter = activation.core.reporter
    before = reporter.lasting
    session = Session(ipython)
    _sessions.append(session)
    guard = install()
    now = status()
    guarded = {event.name for event in now.events if event.kind == "import"}
    late = [finding for finding in now.findings if finding.id == "CG802"]
    early: dict[str, list[str]] = {}  # watched module -> what it was too early for
    for rule in now.rules:
        for name in rule.watch:
            if is_imported(name) and name not in guarded:
                rules = early.setdefault(name, [])
                if any(f.rule == rule.id and f.what.startswith(f"{name} ") for f in late):
                    rules.append(f"{rule.id}, {rule.title or rule.why}")
    repaired = [item for item in reporter.lasting if item not in before]
    told = loaded(guard.mode, early, repaired) if activation.is_up else OFF
    print(printable_lines(told), file=sys.stderr)
    ipython.register_magic_function(session.show_status, "line", MAGIC)


def unload_ipython_extension(ipython: Any) -> None:
    """Take the guard down.

    Args:
        ipython: The shell, which calls this.
    """
    from cudaguard.api import uninstall

    uninstall()
    while _sessions:
        _sessions.pop().leave()
    ipython.magics_manager.magics["line"].pop(MAGIC, None)


class Session:
    """Shows what was found: below each cell of a notebook, and when it is asked for.

    Args:
        ipython: The shell.
    """

    def __init__(self, ipython: Any) -> None:
        from cudaguard.core.lifecycle import activation

        self._shell, self._reporter = ipython, activation.core.reporter
        self._seen = len(self._reporter.channel.findings)
        # A terminal shows the warnings, which have the same words.
        self._has_cells = getattr(ipython, "kernel", None) is not None
        if self._has_cells:
            ipython.events.register("post_run_cell", self.show_new)

    def leave(self) -> None:
        """Show nothing any more."""
        if self._has_cells:
            self._shell.events.unregister("post_run_cell", self.show_new)

    def show_new(self, *_: object) -> None:
        """Display what was found since the last time, if it is more than information."""
        from cudaguard.tools.notebook_table import NotebookTable

        findings = self._reporter.channel.findings
        new, self._seen = findings[self._seen :], len(findings)
        told = [finding for finding in new if finding.severity != "info"]
        if told:
            self._display(NotebookTable(told))

    def show_status(self, _: str) -> None:  # a magic gets what follows it
        """Show the mode of cudaguard, what it has changed and what it has found."""
        from cudaguard.api import status
        from cudaguard.tools.notebook_table import of_status

        self._display(of_status(status()))

    def _display(self, table: NotebookTable) -> None:
        # As IPython.display.display does, which is not imported here.
        data, metadata = self._shell.display_formatter.format(table)
        self._shell.display_pub.publish(data, metadata)


_sessions: list[Session] = []
