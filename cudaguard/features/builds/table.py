"""What this feature has for the core. After a change: python .ci/make_index.py."""

from __future__ import annotations

from cudaguard.core.rule_check import SWITCH, Verb

VERBS = (
    Verb(
        "prepare_builds",
        SWITCH,
        True,
        "Where no GPU is visible, have torch build extensions for all that it supports.",
        {"after": "repair:prepare_builds"},
    ),
)
CATEGORY = "ExtensionWarning"  # of warnings about what its rules have left undone
