"""What this feature has for the core. After a change: python .ci/make_index.py."""

from __future__ import annotations

from cudaguard.core.rule_check import SCOPED_PATTERN, TEXTS, Parameter, Verb

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
    Verb(
        "hide_symbols",
        SCOPED_PATTERN,
        "libdecord.so*",
        "Hide symbols of a library that is in the global symbol scope already.",
        {"around": "repair:hide_after", "late": "repair:check_already_imported"},
        parameters=(
            Parameter("names", TEXTS, "*"),
            Parameter("keep", TEXTS, ("DECORD*",), required=False),
        ),
    ),
)

CATEGORY = "SymbolScopeWarning"  # of warnings about what its rules have left undone

DETECTORS = {
    "detector:ScopeDetector": (
        "begin",
        "unseen",
        "mapped",
    ),
    "detector:RuntimeDetector": ("runtime_exported",),
}
