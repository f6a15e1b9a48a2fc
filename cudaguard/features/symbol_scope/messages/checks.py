"""The wording of doctor's check of LD_PRELOAD."""

from __future__ import annotations

from cudaguard.model import Finding

PRELOADED = "CG915"
_UNSET = "unset LD_PRELOAD"


def missing(path: str) -> Finding:
    """A file that is preloaded is not there."""
    return Finding(
        PRELOADED,
        f"LD_PRELOAD names {path}, which does not exist.",
        consequence="every program starts without it and prints an ld.so error.",
        remedy="correct the path, or remove it from LD_PRELOAD",
        command=_UNSET,
    )


def unfit(path: str) -> Finding:
    """A file that is preloaded cannot be loaded here."""
    return Finding(
        PRELOADED,
        f"LD_PRELOAD names {path}, which is not a library for this machine.",
        consequence="every program starts without it and prints an ld.so error.",
        remedy="name the library built for this machine, or remove it from LD_PRELOAD",
        command=_UNSET,
    )


def brings_runtime(path: str, count: int) -> Finding:
    """A file that is preloaded shows a C++ runtime of its own to everyone."""
    return Finding(
        PRELOADED,
        f"LD_PRELOAD puts the C++ runtime inside {path} before libstdc++.so.6.",
        evidence=(f"{path} exports {count} std::...::id objects",),
        consequence="C++ extensions such as torch mix two runtimes: std::bad_cast, empty streams.",
        remedy="use a release that links libstdc++.so.6, or remove it from LD_PRELOAD",
        command=_UNSET,
    )
