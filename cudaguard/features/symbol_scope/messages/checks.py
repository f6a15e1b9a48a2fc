"""The wording of doctor's check of LD_PRELOAD."""

from __future__ import annotations

import shlex

from cudaguard.model import Finding

PRELOADED = "CG915"
_WITHOUT = "Python starts without it and prints an ld.so error, as do other programs."


def without(path: str, named: list[str]) -> str:
    """Return the command that takes one file out of LD_PRELOAD, and leaves the others."""
    others = ":".join(one for one in named if one != path)
    return f"export LD_PRELOAD={shlex.quote(others)}" if others else "unset LD_PRELOAD"


def missing(path: str, named: list[str]) -> Finding:
    """A file that is preloaded is not there."""
    return Finding(
        PRELOADED,
        f"LD_PRELOAD names {path}, which is not there.",
        consequence=_WITHOUT,
        remedy="correct the path, or remove it from LD_PRELOAD",
        command=without(path, named),
    )


def unfit(path: str, named: list[str]) -> Finding:
    """A file that is preloaded cannot be loaded here."""
    return Finding(
        PRELOADED,
        f"LD_PRELOAD names {path}, which cannot be read as a library for this machine.",
        consequence=_WITHOUT,
        remedy="name the library built for this machine, or remove it from LD_PRELOAD",
        command=without(path, named),
    )


def brings_runtime(path: str, count: int, named: list[str]) -> Finding:
    """A file that is preloaded shows a C++ runtime of its own to everyone."""
    return Finding(
        PRELOADED,
        f"LD_PRELOAD puts the C++ runtime inside {path} before libstdc++.so.6.",
        evidence=(f"{path} exports {count} std::...::id object{'s' * (count > 1)}",),
        consequence="C++ extensions such as torch may mix two runtimes: std::bad_cast, empty "
        "streams.",
        remedy="use a release that links libstdc++.so.6, or remove it from LD_PRELOAD",
        command=without(path, named),
    )
