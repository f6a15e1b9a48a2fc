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
    "CG885": ("a build that has ended left its lock", "ExtensionWarning"),
    "CG886": ("a build waits for a lock", "ExtensionWarning"),
    "CG887": ("CUDA sources cannot be built with a torch without CUDA", "ExtensionWarning"),
    "CG888": ("the CUDA toolkit is missing or incomplete", "ExtensionWarning"),
    "CG889": ("nvcc and torch are from different CUDA releases", "ExtensionWarning"),
    "CG890": ("nvcc refuses the C++ compiler", "ExtensionWarning"),
    "CG891": ("an extension in torch's cache was built for another torch", "ExtensionWarning"),
    "CG892": ("an extension was built but would not load", "ExtensionWarning"),
}
KNOWN_ERRORS = "known_errors:EXPLAINER"
# Id -> what follows from it, what to do, and the page about it.
ABOUT: dict[str, tuple[str, str, str]] = {
    "CG885": (
        "every later build of that extension waits without a limit.",
        "delete the lock file that the message names, unless cudaguard removed it",
        "howto/builds.md",
    ),
    "CG886": (
        "the program waits until the other build ends.",
        "wait, or end the process that the message names",
        "howto/builds.md",
    ),
    "CG887": (
        "the extension does not compile, or has no code for GPUs.",
        "install a CUDA build of torch",
        "howto/builds.md",
    ),
    "CG888": (
        "nvcc or its headers are not found, and the build fails.",
        "install the toolkit of torch.version.cuda, and set CUDA_HOME",
        "howto/builds.md",
    ),
    "CG889": (
        "torch refuses to build with it, or what it builds may not work.",
        "install the toolkit of torch.version.cuda, and set CUDA_HOME to it",
        "howto/builds.md",
    ),
    "CG890": (
        "nvcc stops with 'unsupported GNU version'.",
        "install the compiler that the message names, and set CC and CXX to it",
        "howto/builds.md",
    ),
    "CG891": (
        "it may fail to load, or compute wrong results.",
        "delete its folder in torch's cache, unless cudaguard builds it again",
        "howto/builds.md",
    ),
    "CG892": (
        "the import that follows probably fails.",
        "run cudaguard check-extension on the file, and follow its remedy",
        "howto/extensions.md",
    ),
}
