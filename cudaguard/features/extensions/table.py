"""What this feature has for the core. After a change: python .ci/make_index.py."""

from __future__ import annotations

IDS = {
    "CG821": ("the dynamic loader had no room for thread-local variables", "ExtensionWarning"),
    "CG840": ("an extension file is truncated", "ExtensionWarning"),
    "CG841": ("the dynamic loader refused an extension", "ExtensionWarning"),
}
DETECTORS = {
    "detector:ExtensionDetector": (
        "truncated",
        "load_failed",
        "refused",
        "error_passes",
        "forget",
    ),
    "detector:StaticTlsDetector": ("load_failed", "error_passes"),
}
KNOWN_ERRORS = "known_errors:EXPLAINER"
# Id -> what follows from it, what to do, and the page about it.
ABOUT: dict[str, tuple[str, str, str]] = {
    "CG840": (
        "loading it would probably end the process with SIGBUS. Mode 'fix' refuses it.",
        "delete the file, and build or install it again",
        "howto/extensions.md",
    ),
    "CG841": (
        "the extension is not loaded.",
        "run cudaguard check-extension FILE, and follow its remedy",
        "howto/extensions.md",
    ),
}
