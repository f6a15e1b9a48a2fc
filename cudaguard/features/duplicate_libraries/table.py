"""What this feature has for the core. After a change: python .ci/make_index.py."""

from __future__ import annotations

from cudaguard.features.duplicate_libraries.older_cudnn import PACKAGES

DETECTORS = {
    "detector:DuplicateDetector": (
        "begin",
        "unseen",
        "mapped",
        *(f"imported:{name}" for name in PACKAGES),
    ),
}
