"""What memory this process and those below it may have, and whether the kernel has killed for it.

Source: ``cgroups(7)``, the kernel's ``cgroup-v2`` and ``cgroup-v1/memory`` documents,
``getrlimit(2)``.
"""

from __future__ import annotations

_ROOT = "/sys/fs/cgroup"


def oom_kills() -> int:
    """Return how many processes of this control group the kernel has killed for want of memory.

    -1 where nobody tells.
    """
    for path in _event_files():
        try:
            with open(path, encoding="ascii") as file:
                for line in file:
                    name, _, number = line.partition(" ")
                    if name == "oom_kill" and number.strip().isdecimal():
                        return int(number)
        except (OSError, ValueError):
            continue
    return -1


def _event_files() -> list[str]:
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            groups = [line.rstrip("\n").split(":", 2) for line in file]
    except (OSError, ValueError):
        return []
    found = []
    for group in groups:
        if len(group) == 3 and not group[1]:
            # In a container the path is often that of the host: what is mounted is the group.
            found += [f"{_ROOT}{group[2]}/memory.events", f"{_ROOT}/memory.events"]
        elif len(group) == 3 and "memory" in group[1].split(","):
            found += [f"{_ROOT}/memory{group[2]}/memory.oom_control"]
            found += [f"{_ROOT}/memory/memory.oom_control"]
    return found


def address_space() -> int:
    """Return the limit of the address space (``ulimit -v``) in bytes, 0 for none."""
    try:
        import resource
    except ImportError:
        return 0
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return 0 if limit == resource.RLIM_INFINITY else limit
