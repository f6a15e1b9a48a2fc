"""How much memory and how many processors this process may use: of the machine, and of its cgroup.

Source: ``proc(5)``, ``cgroups(7)``; kernel documentation, "Control Group v2", "Memory Resource
Controller".
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# Where the hierarchies are mounted: the second one beside those of version 1.
_VERSION_2 = ("sys/fs/cgroup", "sys/fs/cgroup/unified")
_VERSION_1 = "sys/fs/cgroup/memory"


def cores() -> int:
    """Return how many processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory(root: str = "/") -> int | None:
    """Return the bytes that can be had before the machine or a limit stops it; None if unknown.

    Args:
        root: The folder that has ``proc`` and ``sys``.
    """
    found = list(_left_in_groups(root))
    found += [
        int(line.split()[1]) * 1024
        for line in _lines(os.path.join(root, "proc/meminfo"))
        if line.startswith("MemAvailable:")
    ]
    return min(found, default=None)


def _left_in_groups(root: str) -> Iterator[int]:
    for line in _lines(os.path.join(root, "proc/self/cgroup")):
        _, controllers, group = line.split(":", 2)
        if not controllers:
            for place in _VERSION_2:
                names = ("memory.max", "memory.current", "inactive_file")
                yield from _left(os.path.join(root, place), group, *names)
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            yield from _left(os.path.join(root, _VERSION_1), group, *names)


def _left(place: str, group: str, limit: str, usage: str, cache: str) -> Iterator[int]:
    """Yield what is left in a group and in those around it, which all have to do with it."""
    # In a container the path may be that of the host: what can be seen is the top then.
    parts = [part for part in group.split("/") if part not in ("", "..")]
    for count in range(len(parts), -1, -1):
        folder = os.path.join(place, *parts[:count])
        most, used = (_number(os.path.join(folder, name)) for name in (limit, usage))
        if most is not None and used is not None:
            # Pages of files that nobody uses are given up first.
            idle = 0
            for line in _lines(os.path.join(folder, "memory.stat")):
                if line.startswith(f"{cache} "):
                    idle = int(line.split()[1])
            yield max(0, most - used + min(idle, used))


def _number(path: str) -> int | None:
    text = next(_lines(path), "")
    return int(text) if text.isdigit() else None  # "max": no limit


def _lines(path: str) -> Iterator[str]:
    try:
        with open(path, encoding="utf-8") as file:
            yield from map(str.strip, file)
    except (OSError, ValueError):
        return
