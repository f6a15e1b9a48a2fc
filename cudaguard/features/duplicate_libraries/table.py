"""What this feature has for the core. After a change: python .ci/make_index.py."""

from __future__ import annotations

from cudaguard.features.duplicate_libraries.judgement import PACKAGES

IDS = {
    "CG842": ("two files of one library are loaded", "ImportOrderWarning"),
    "CG823": ("a library is older than a package was built for", "ImportOrderWarning"),
    "CG826": ("an older library was loaded than the environment has", "ImportOrderWarning"),
    "CG843": ("a library uses another file than its run path names", "ImportOrderWarning"),
}
DETECTORS = {
    "detector:DuplicateDetector": (
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
        "packages that use the library get an older release than the environment has.",
        "upgrade cuda-pathfinder, or cuda-bindings: later releases search the environment first",
        "howto/extensions.md",
    ),
    "CG823": (
        "packages that need the library may fail on the GPU, or run on the CPU.",
        "install the release that the package requires; others usually work with it too",
        "howto/extensions.md",
    ),
}
