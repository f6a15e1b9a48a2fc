"""Processes below this one, from ``/proc`` (Linux): who has started whom, and in what state.

Source: ``proc(5)``.
"""

from __future__ import annotations

import os

_PARENT, _STATE, _START = 1, 0, 19  # fields of /proc/PID/stat behind the name
_DEEPEST = 1000  # generations; ids that are used again while we look may go round in circles


def _stat(pid: int) -> list[str]:
    """Return the fields behind the name, which may hold blanks and brackets; [] if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode().split()
    except (OSError, UnicodeDecodeError):
        return []


def descendants(pid: int) -> tuple[int, ...]:
    """Return the processes that a process and its children have started, parents first.

    Those whose parent has ended are not found: they have been handed to another.
    """
    children: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return ()
    for name in names:
        if name.isdecimal():
            fields = _stat(int(name))
            if fields:
                children.setdefault(int(fields[_PARENT]), []).append(int(name))
    found: list[int] = []
    todo = [pid]
    while todo:
        below = children.pop(todo.pop(0), [])
        found += below
        todo += below
    return tuple(found)


def is_below(pid: int, top: int) -> bool:
    """Is that process `top`, or was it started by it or by one that it has started?"""
    for _ in range(_DEEPEST):
        if pid == top:
            return True
        fields = _stat(pid)
        if not fields:
            return False
        pid = int(fields[_PARENT])
    return False


def state(pid: int) -> str:
    """Return the state of a process as one letter, ``T`` for stopped; empty if it is gone."""
    fields = _stat(pid)
    return fields[_STATE] if fields else ""


def start_of(pid: int) -> str:
    """Return when a process was started, which with its id tells it from any other.

    Empty if it is gone, or has ended and only waits for its parent to notice.
    """
    fields = _stat(pid)
    return fields[_START] if fields and fields[_STATE] not in "ZX" else ""


def handles(pid: int, number: int) -> bool:
    """Has a process a handler of its own for a signal?"""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            for line in file:
                if line.startswith("SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    except (OSError, ValueError):
        return False
    return False
