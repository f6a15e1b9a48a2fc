"""What this feature has for the core. After a change: python .ci/make_index.py."""

from __future__ import annotations

DETECTORS = {
    "detector:ArchitectureDetector": ("begin", "imported:torch", "forget"),
}
KNOWN_ERRORS = "known_errors:EXPLAINER"
