"""The IPython and Jupyter extension: ``%load_ext cudaguard``, ``%unload_ext``, ``%cudaguard``."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

_MAGIC = "cudaguard"
_OFF = "cudaguard stays off, as the variable CUDAGUARD says."
_START_AGAIN = (
    "cudaguard guards what is imported from now on. To guard the rest as well, restart Python (in\n"
    "a notebook: restart the kernel) with `%load_ext cudaguard` first."
)


def load_ipython_extension(ipython: Any) -> None:
    """Install the guard for the rest of the session, and say what is too late for it.

    Args:
        ipython: The shell, which calls this.
    """
    from cudaguard.api import install, status
    from cudaguard.core.lifecycle import activation
    from cudaguard.core.loader import is_imported
    from cudaguard.files.text import printable_lines

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
    text = loaded(guard.mode, early, repaired) if activation.is_up else _OFF
    print(printable_lines(text), file=sys.stderr)
    ipython.register_magic_function(show_status, "line", _MAGIC)


def unload_ipython_extension(ipython: Any) -> None:
    """Uninstall the guard.

    Args:
        ipython: The shell, which calls this.
    """
    from cudaguard.api import uninstall

    uninstall()
    ipython.magics_manager.magics["line"].pop(_MAGIC, None)


def show_status(_: str) -> None:  # a magic gets what follows it
    """Show the mode of cudaguard, what it has changed and what it has found."""
    from cudaguard.api import status
    from cudaguard.files.text import printable_lines

    print(printable_lines(str(status())))


def loaded(mode: str, early: Mapping[str, Sequence[str]], repaired: Iterable[str]) -> str:
    """Return what is said when the extension is loaded.

    Args:
        mode: The mode in force.
        early: Watched module that was there before -> what it was too early for, in words.
        repaired: What was repaired afterwards.
    """
    headline = f"cudaguard is on in this session, mode {mode}."
    if not early:
        return f"{headline} Nothing that it watches was imported before it."
    lines = [f"{headline} Imported before it: {', '.join(early)}."]
    lines += [
        f"  too late for {module}: {rule}" for module, rules in early.items() for rule in rules
    ]
    lines += [f"  repaired afterwards: {item}" for item in repaired]
    lines += [f"  no restart needed for {module}" for module, rules in early.items() if not rules]
    return "\n".join([*lines, _START_AGAIN] if any(early.values()) else lines)
