"""The IPython and Jupyter extension: ``%load_ext cudaguard``, ``%unload_ext``, ``%cudaguard``."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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
    ipython.register_magic_function(_tell_status, "line", MAGIC)


def unload_ipython_extension(ipython: Any) -> None:
    """Take the guard down.

    Args:
        ipython: The shell, which calls this.
    """
    from cudaguard.api import uninstall

    uninstall()
    ipython.magics_manager.magics["line"].pop(MAGIC, None)


def _tell_status(line: str) -> None:  # a magic gets what follows it
    """Show the mode of cudaguard, what it has changed and what it has found."""
    from cudaguard.api import status

    print(status())
