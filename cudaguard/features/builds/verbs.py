"""The actions of rules about builds with ``torch.utils.cpp_extension``."""

from __future__ import annotations

from cudaguard.core.verbs import SWITCH, Verb

VERBS = (
    Verb(
        "prepare_builds",
        SWITCH,
        True,
        "Give builds with torch.utils.cpp_extension the tools and variables they need.",
    ),
    Verb(
        "break_stale_locks",
        SWITCH,
        True,
        "Break the lock that a killed build has left.",
    ),
)
