"""What this feature has for the core. After a change: python .ci/make_index.py."""

from __future__ import annotations

from cudaguard.core.verbs import SWITCH, Verb

VERBS = (
    Verb(
        "prepare_builds",
        SWITCH,
        True,
        "Give builds with torch.utils.cpp_extension the tools and variables they need.",
        {"around": "repair.builds:ask_nvml", "after": "repair.builds:put_up"},
    ),
    Verb(
        "break_stale_locks",
        SWITCH,
        True,
        "Break the lock that a killed build has left.",
        {"after": "repair.builds:put_up"},
    ),
)

CATEGORY = "ExtensionWarning"  # of warnings about what its rules have left undone

IDS = {
    "CG885": ("a build that was killed has left its lock", "ExtensionWarning"),
    "CG886": ("a build waits for a lock", "ExtensionWarning"),
    "CG887": ("CUDA sources are to be built with a torch without CUDA", "ExtensionWarning"),
    "CG888": ("the CUDA toolkit is missing or incomplete", "ExtensionWarning"),
    "CG889": ("nvcc is of another CUDA than torch", "ExtensionWarning"),
    "CG890": ("the compiler is one that nvcc refuses", "ExtensionWarning"),
    "CG891": ("an extension in torch's cache was built for something else", "ExtensionWarning"),
    "CG892": ("an extension that was just built would not load", "ExtensionWarning"),
}
KNOWN_ERRORS = "known_errors:EXPLAINER"
