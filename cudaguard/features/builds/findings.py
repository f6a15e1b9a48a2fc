"""What is said of builds with ``torch.utils.cpp_extension``."""

from __future__ import annotations

import os
import shlex
import time

from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.features.builds.locks import Lock

STALE, WAITING, CACHE = "CG885", "CG886", "CG908"
NO_ENTRY = "CG836"

REMOVED = "removed, as the build that made it has ended"
NO_GPU_IS_VISIBLE = "taken for a build, as no GPU is visible that torch could build for"


def stale_lock(path: str, age: float, *, is_removed: bool) -> Finding:
    """A lock whose builder was killed."""
    done = "removed" if is_removed else "found"
    return Finding(
        STALE,
        f"cudaguard {done} the lock {path}: the build that made it {_span(age)} ago has ended.",
        evidence=("no process has the lock open or works in its folder",),
        consequence="this process builds the extension."
        if is_removed
        else "torch waits for the lock to disappear, without a limit and without a message.",
        remedy="" if is_removed else "remove the lock",
        command="" if is_removed else f"rm {shlex.quote(path)}",
        links=("https://github.com/pytorch/pytorch/pull/190543",),
    )


def _span(seconds: float) -> str:
    for length, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"


def waiting(path: str, lock: Lock, command: str) -> Finding:
    """A lock that is waited for.

    Args:
        path: The lock.
        lock: What is known of it.
        command: The command line of its process, empty if that is not known.
    """
    folder = os.path.dirname(path)
    if lock.pid:
        does = "holds the lock in" if lock.state == "held" else "works in"
        what = f"This process waits for process {lock.pid}, which {does} {folder}."
        remedy = "wait; or, if that process hangs, end it"
    else:
        what = f"This process waits for the lock {path}, whose holder is unknown: {lock.why}."
        remedy = "remove the lock if no process builds there"
    return Finding(
        WAITING,
        what,
        evidence=(f"process {lock.pid}: {command or 'unknown'}",) if lock.pid else (),
        consequence="this process goes on when the lock is gone.",
        remedy=remedy,
        command=f"ps -fp {lock.pid}" if lock.pid else f"rm {shlex.quote(path)}",
    )


def old_lock(path: str, lock: Lock) -> Finding:
    """A lock of which it cannot be told whether anybody holds it."""
    made = time.strftime("%Y-%m-%d %H:%M", time.localtime(time.time() - lock.age))
    return Finding(
        CACHE,
        f"The holder of the lock {path} ({made}) is unknown: {lock.why}.",
        severity="info",
        consequence="if its build was killed, torch waits for the lock without a limit and without "
        "a message.",
        remedy="remove the lock if no process builds there",
        command=f"rm {shlex.quote(path)}",
    )


def no_such_entry(rule: str, place: str) -> Finding:
    """A part of torch that is called otherwise in this version."""
    return Finding(
        NO_ENTRY,
        f"cudaguard does not know {place} of this version of torch, and does not guard it.",
        rule=rule,
        severity="info",
        consequence="this part of a build runs as it would without cudaguard.",
    )
