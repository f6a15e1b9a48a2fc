"""What this feature has for the core. After a change: python .ci/make_index.py."""

from __future__ import annotations

from cudaguard.core.rule_check import (
    FILE_PATTERN,
    FUNCTION,
    LIBRARY,
    LIBRARY_PATH,
    SWITCH,
    TEXT,
    TEXTS,
    Parameter,
    Verb,
)

VERBS = (
    Verb(
        "provide_libraries",
        FILE_PATTERN,
        "libtorch*.so*",
        "Import the watched module before any extension that needs such a library.",
        {"needing": "repair:provide"},
    ),
    Verb(
        "preload",
        LIBRARY,
        "nvidia/nccl/lib/libnccl.so.2",
        "Load an installed library, or what it needs, before the watched module is imported or at "
        "a call.",
        {
            "before": "repair:preload",
            "late": "repair:came_too_late",
            "after": "repair:preload_at_call",
        },
        parameters=(
            Parameter("if_older", SWITCH, True, required=False),
            Parameter("dependencies", SWITCH, True, required=False),
            Parameter("at", FUNCTION, "InferenceSession", required=False),
            Parameter("naming", TEXT, "CUDAExecutionProvider", required=False),
        ),
    ),
    Verb(
        "check_call",
        FUNCTION,
        "SimulationApp",
        "Tell if a function, or a class, is first called after the import of one of some modules.",
        {"after": "calls:watch"},
        parameters=(
            Parameter("before", TEXTS, "pxr"),
            Parameter("sharing", LIBRARY_PATH, "example.libs/libxcb*.so*", required=False),
        ),
        grades=("report",),
    ),
)
# What built-in rules alone ask for.
REPAIRS = {
    "preload_newest": {"before": "newest:preload_newest", "first": "newest:preload_newest"},
    "fetch_installed": {"lacking": "repair:fetch"},
    "preload_needed": {"choosing": "newest:preload_needed"},
    "preload_static_tls": {"before": "repair:preload_static_tls"},
}

CATEGORY = "ImportOrderWarning"  # of warnings about what its rules have left undone

DETECTORS = {
    "calls:SearchPathDetector": ("not_found",),
}
