"""What this feature has for the core. After a change: python .ci/make_index.py."""

from __future__ import annotations

# What a built-in rule alone asks for.
REPAIRS = {"preload_newer_nvrtc": {"before": "repair:preload_newer_nvrtc"}}
NEED_DRIVER = ("preload_newer_nvrtc",)  # elsewhere there is nothing to repair

CATEGORY = "ImportOrderWarning"  # of warnings about what its rules have left undone

DETECTORS = {
    "detector:ArchitectureDetector": ("begin", "imported:torch", "forget"),
}
KNOWN_ERRORS = "known_errors:EXPLAINER"
