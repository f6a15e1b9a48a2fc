"""Which processors and addresses this process may use; whether the kernel has killed for memory.

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


def oom_kills(root: str = "/") -> int:
    """Return how many processes of this control group the kernel has killed for want of memory.

    -1 where nobody tells.

    Args:
        root: The folder that has ``proc`` and ``sys``.
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


def _lines(path: str) -> Iterator[str]:
    try:
        text = read_bytes(path, 1 << 20).decode()
    except (OSError, ValueError):
        return
    yield from map(str.strip, text.splitlines())
