"""What this feature has for the core. After a change: python .ci/make_index.py."""

from __future__ import annotations

from cudaguard.features.duplicate_libraries.policy.wanted import PACKAGES

IDS = {
    "CG842": ("two files of one library are in the process", "ImportOrderWarning"),
    "CG823": ("a library is older than a package was built for", "ImportOrderWarning"),
    "CG826": ("a search took an older library than the environment has", "ImportOrderWarning"),
    "CG843": ("a library gets another file than its own folders lead to", "ImportOrderWarning"),
}
DETECTORS = {
    "detector.duplicates:DuplicateDetector": (
        "begin",
        "unseen",
        "mapped",
        *(f"imported:{name}" for name in PACKAGES),
    ),
}
KNOWN_ERRORS = "known_errors:EXPLAINER"
# Id -> what follows from it, what to do, and the page about it.
ABOUT: dict[str, tuple[str, str, str]] = {
    "CG826": (
        "what uses the library gets an older release than the environment was made with.",
        "install a later cuda-pathfinder, which looks into the environment first",
        "howto/extensions.md",
    ),
    "CG823": (
        "what needs the library fails on the GPU, or runs on the CPU.",
        "install the release that the package asks for; others work with it too",
        "howto/extensions.md",
    ),
}
