"""What this feature has for the core. After a change: python .ci/make_index.py."""

from __future__ import annotations

from cudaguard.core.rule_check import SCOPED_PATTERN, Verb

VERBS = (
    Verb(
        "load_local",
        SCOPED_PATTERN,
        "libdecord.so*",
        "Load matching libraries with local symbol scope, even where RTLD_GLOBAL is asked for.",
        {
            "opening": "repair:keep_local",
            "masking": "repair:leave_global",
            "late": "repair:check_already_imported",
        },
    ),
)

CATEGORY = "SymbolScopeWarning"  # of warnings about what its rules have left undone

DETECTORS = {
    "detector:ScopeDetector": (
        "begin",
        "unseen",
        "mapped",
        "mapping",
        "forget",
    ),
    "own_runtime:RuntimeDetector": ("runtime_exported",),
}
