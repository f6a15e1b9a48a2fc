"""The IPython and Jupyter extension: ``%load_ext cudaguard``, ``%unload_ext``, ``%cudaguard``."""

from __future__ import annotations

import sys

from cudaguard import install
from cudaguard.api import leave, status, uninstall
from cudaguard.core.lifecycle import activation
from cudaguard.files.text import printable_lines
from cudaguard.model import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

_OFF = "cudaguard stays off, as the variable CUDAGUARD says."
_START_AGAIN = (
    "cudaguard guards what is imported from now on. To guard the rest as well, restart Python (in\n"
    "a notebook: restart the kernel) with `%load_ext cudaguard` first."
)


def load_ipython_extension(ipython: Any) -> None:
    """Install the guard for the rest of the session, and say what is too late for it."""
    reporter = activation.core.reporter
    before = reporter.lasting
    lines = [f"cudaguard is on in this session, mode {install().mode}."]
    late = [finding.what for finding in status().findings]
    repaired = [item for item in reporter.lasting if item not in before]
    lines += [f"  {what}" for what in late]
    lines += [f"  changed until Python ends: {item}" for item in repaired]
    lines += [_START_AGAIN] * bool(late)
    text = "\n".join(lines) if activation.core.is_installed else _OFF
    print(printable_lines(text), file=sys.stderr)
    ipython.register_magic_function(show_status, "line", "cudaguard")
    ipython.events.register("post_run_cell", look_at_error)


def unload_ipython_extension(ipython: Any) -> None:
    """Uninstall the guard."""
    uninstall()
    ipython.magics_manager.magics["line"].pop("cudaguard", None)
    ipython.events.unregister("post_run_cell", look_at_error)


def look_at_error(cell: Any) -> None:
    """Say why the loader has refused a library whose error has ended a cell; nothing else does."""
    leave(cell.error_in_exec, lambda: None)


def show_status(_: str) -> None:  # a magic gets what follows it
    """Show the mode of cudaguard, what it has changed and what it has found."""
    print(printable_lines(str(status())))
