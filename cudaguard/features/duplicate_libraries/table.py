"""What this feature has for the core. After a change: python .ci/make_index.py."""

from __future__ import annotations

IDS = {
    "CG842": ("two files of one library are in the process", "ImportOrderWarning"),
    "CG843": ("a library gets another file than its own folders lead to", "ImportOrderWarning"),
}
DETECTORS = {
    "detector.duplicates:DuplicateDetector": (
        "begin",
        "unseen",
        "mapped",
    ),
}
KNOWN_ERRORS = "known_errors:EXPLAINER"
