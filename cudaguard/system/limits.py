"""What memory and processors this process may use, and whether the kernel has killed for memory.

Source: ``proc(5)``, ``cgroups(7)``, ``getrlimit(2)``; kernel documentation, "Control Group v2",
"Memory Resource Controller".
"""

from __future__ import annotations

import os

from cudaguard.files import read_bytes

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


def oom_kills(root: str = "/") -> int:
    """Return how many processes of this control group the kernel has killed for want of memory.

    -1 where nobody tells.

    Args:
        root: As above.
    """
    for folder, is_second in _groups(root):
        name = "memory.events" if is_second else "memory.oom_control"
        for line in _lines(os.path.join(folder, name)):
            word, _, number = line.partition(" ")
            if word == "oom_kill" and number.isdecimal():
                return int(number)
    return -1


def address_space() -> int:
    """Return the limit of the address space (``ulimit -v``) in bytes, 0 for none."""
    try:
        import resource
    except ImportError:
        return 0
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return 0 if limit == resource.RLIM_INFINITY else limit


def _left_in_groups(root: str) -> Iterator[int]:
    for folder, is_second in _groups(root):
        if is_second:
            yield from _left(folder, "memory.max", "memory.current", "inactive_file")
        else:
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            yield from _left(folder, *names)


def _groups(root: str) -> Iterator[tuple[str, bool]]:
    """Yield the folders of our memory control groups, innermost first, with True for version 2."""
    for line in _lines(os.path.join(root, "proc/self/cgroup")):
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        places: tuple[str, ...] = ()
        if not controllers:
            places = _VERSION_2
        elif "memory" in controllers.split(","):
            places = (_VERSION_1,)
        # In a container the path may be that of the host: what can be seen is the top then.
        parts = [part for part in group.split("/") if part not in ("", "..")]
        for place in places:
            for count in range(len(parts), -1, -1):
                yield os.path.join(root, place, *parts[:count]), not controllers


def _left(folder: str, limit: str, usage: str, cache: str) -> Iterator[int]:
    """Yield what is left in a group; those around it have to do with it as well."""
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
        text = read_bytes(path, 1 << 20).decode()
    except (OSError, ValueError):
        return
    yield from map(str.strip, text.splitlines())
