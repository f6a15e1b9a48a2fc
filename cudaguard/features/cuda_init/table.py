"""What this feature has for the core. After a change: python .ci/make_index.py."""

from __future__ import annotations

from cudaguard.core.verbs import MODULE, TEXT, VARIABLE, Parameter, Verb

VERBS = (
    Verb(
        "set_env",
        VARIABLE,
        "XLA_PYTHON_CLIENT_PREALLOCATE",
        "Set an environment variable before the import, unless it is set.",
        {"before": "repair.stand_ins:set_env"},
        parameters=(Parameter("value", TEXT, "false"),),
        grades=("opt-in",),
    ),
    Verb(
        "replace_module",
        MODULE,
        "pycuda.autoprimaryctx",
        "Import another module and use it as the watched one.",
        {"before": "repair.stand_ins:replace_module"},
        grades=("opt-in",),
    ),
)

CATEGORY = "ImportOrderWarning"  # of warnings about what its rules have left undone

IDS = {
    "CG814": ("CUDA was initialized", "ContextWarning"),
    "CG815": ("a CUDA context was created", "ContextWarning"),
    "CG816": ("an import left a CUDA context of its own current", "ContextWarning"),
    "CG817": ("a CUDA context could not be created", "ContextWarning"),
    "CG818": ("a forked process uses CUDA, which its parent had initialized", "ForkWarning"),
    "CG819": (
        "an environment variable was set after it had been read for good",
        "LateEnvironmentWarning",
    ),
}
DETECTORS = {
    "detector.contexts:CudaDetector": (
        "begin",
        "ctypes_comes",
        "unseen",
        "before_load",
        "around_import",
        "mapped",
        "loaded",
        "error_passes",
        "forget",
    ),
}
PREREQUISITES = {"context": "repair.creation:prepare"}
INITIALIZERS = "initializers:INITIALIZERS"
KNOWN_ERRORS = "known_errors:EXPLAINER"
