"""What this feature has for the core. After a change: python .ci/make_index.py."""

from __future__ import annotations

DETECTORS = {
    "detector:ExtensionDetector": (
        "truncated",
        "load_failed",
        "refused",
        "error_passes",
        "forget",
    ),
}
KNOWN_ERRORS = "known_errors:EXPLAINER"
