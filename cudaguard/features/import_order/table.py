"""What this feature has for the core. After a change: python .ci/make_index.py."""

from __future__ import annotations

from cudaguard.core.verbs import (
    FILE_PATTERN,
    FUNCTION,
    LIBRARY_PATH,
    SWITCH,
    TEXT,
    TEXTS,
    Kind,
    Parameter,
    Verb,
)

SONAME = Kind(
    "the soname of a library",
    lambda value: isinstance(value, str) and bool(value) and not set("/*?[ ") & set(value),
    {"type": "string", "minLength": 1},
)

VERBS = (
    Verb(
        "provide_libraries",
        FILE_PATTERN,
        "libtorch*.so*",
        "Import the watched module before any extension that needs such a library.",
        {"needing": "repair:provide"},
    ),
    Verb(
        "preload_library",
        LIBRARY_PATH,
        "nvidia/nccl/lib/libnccl.so.2",
        "Load an installed library before the watched module is imported.",
        {"before": "repair:preload", "late": "repair:came_too_late"},
        parameters=(Parameter("if_older", SWITCH, True, required=False),),
    ),
    Verb(
        "preload_dependencies",
        LIBRARY_PATH,
        "onnxruntime/capi/libonnxruntime_providers_cuda.so",
        "Load what a library needs and the loader would not find, before the import or at a call.",
        {
            "before": "repair:preload",
            "late": "repair:came_too_late",
            "after": "repair:preload_at_call",
        },
        parameters=(
            Parameter("at", FUNCTION, "InferenceSession", required=False),
            Parameter("naming", TEXT, "CUDAExecutionProvider", required=False),
        ),
    ),
    Verb(
        "preload_soname",
        SONAME,
        "libcublas.so.12",
        "Load a library that a package opens by its name, from the NVIDIA wheel that has it.",
        {"before": "repair:preload", "late": "repair:came_too_late"},
    ),
    Verb(
        "preload_newest",
        SONAME,
        "libstdc++.so.6",
        "Load the environment's copy of a library where the loader would take an older one.",
        {"before": "newest:preload_newest", "first": "newest:preload_newest"},
    ),
    Verb(
        "fetch_from_wheels",
        FILE_PATTERN,
        "libcu*.so*",
        "Load a library that another one was refused for from the NVIDIA wheel that has it, and "
        "try again.",
        {"lacking": "repair:fetch"},
    ),
    Verb(
        "preload_static_tls",
        FILE_PATTERN,
        "libgomp*.so*",
        "Load bundled libraries that want static TLS early, for packages that are imported next.",
        {"before": "repair:preload_static_tls"},
    ),
    Verb(
        "check_call",
        FUNCTION,
        "SimulationApp",
        "Tell if a function, or a class, is first called after the import of one of some modules.",
        {"after": "calls:watch"},
        parameters=(
            Parameter("before", TEXTS, "pxr"),
            Parameter("sharing", LIBRARY_PATH, "example.libs/libxcb*.so*", required=False),
        ),
        grades=("report",),
    ),
)

CATEGORY = "ImportOrderWarning"  # of warnings about what its rules have left undone

IDS = {
    "CG820": (
        "LD_LIBRARY_PATH was changed after Python started",
        "LateEnvironmentWarning",
    ),
}
DETECTORS = {
    "detector:SearchPathDetector": ("not_found",),
}
KNOWN_ERRORS = "known_errors:EXPLAINER"
# Id -> what follows from it, what to do, and the page about it.
ABOUT: dict[str, tuple[str, str, str]] = {
    "CG820": (
        "the dynamic loader reads LD_LIBRARY_PATH only once, when a process starts.",
        "set LD_LIBRARY_PATH before Python starts, or load the library by its path",
        "howto/cuda.md",
    ),
}
