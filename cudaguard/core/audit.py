"""One audit hook and one at-fork handler: what a process does with its environment and by forking.

Python takes neither away again. Both are put up once, the first time that the CUDA driver is seen
in the process, and do nothing while nobody listens.

Source: `PEP 578 <https://peps.python.org/pep-0578/>`_; library reference, "Audit events table".
"""

from __future__ import annotations

import sys

from cudaguard.files import os, ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class EventListener(Protocol):
        """What is told; none of these may raise."""

        def before_fork(self) -> None:
            """The process is about to be forked."""

        def after_fork_in_child(self) -> None:
            """This is the child."""

        def variable_changes(self, name: str, value: str | None) -> None:
            """An environment variable is about to be set, or unset (None)."""


_listener: EventListener | None = None
_is_up = False


def listen(listener: EventListener | None) -> None:
    """Have a listener told from now on; None tells nobody."""
    global _listener, _is_up  # noqa: PLW0603  # one hook per process is all that Python can forget
    _listener = listener
    if listener is not None and not _is_up:
        _is_up = True
        sys.addaudithook(_hear)
        os.register_at_fork(after_in_child=_hear_in_child)


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    try:
        # Every audit event of the process comes by here: one comparison for nearly all of them.
        if not event.startswith("os."):
            return
        listener = _listener
        if listener is None or sys is None or sys.meta_path is None:  # None: Python shuts down
            return
        if event == "os.putenv":
            name, value = arguments
            listener.variable_changes(_text(name), _text(value))
        elif event == "os.unsetenv":
            listener.variable_changes(_text(arguments[0]), None)
        elif event in ("os.fork", "os.forkpty"):
            listener.before_fork()
    except ours(Exception):  # whatever somebody calls sys.audit with: not ours to raise from here
        return


def _hear_in_child() -> None:
    try:
        if _listener is not None:
            _listener.after_fork_in_child()
    except ours(Exception):
        return


def _text(value: object) -> str:
    return os.fsdecode(value) if isinstance(value, bytes) else str(value)
