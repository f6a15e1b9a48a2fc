"""What this feature has for the core. After a change: python .ci/make_index.py."""

from __future__ import annotations

from cudaguard.core.rule_check import MODULE, TEXT, VARIABLE, Parameter, Verb
from cudaguard.features.cuda_init.expectations import EXPECTATIONS

VERBS = (
    Verb(
        "set_env",
        VARIABLE,
        "XLA_PYTHON_CLIENT_PREALLOCATE",
        "Set an environment variable before the import, unless it is set; `beside`: only with that "
        "module.",
        {"before": "repair:set_env"},
        parameters=(
            Parameter("value", TEXT, "false"),
            Parameter("beside", MODULE, "dask_cuda", required=False),
        ),
    ),
)
# What a built-in rule alone asks for.
REPAIRS = {"replace_module": {"before": "repair:replace_module"}}

CATEGORY = "ImportOrderWarning"  # of warnings about what its rules have left undone

IDS = {
    "CG814": ("CUDA was initialized", "ContextWarning"),
    "CG815": ("a CUDA context was created", "ContextWarning"),
    "CG816": ("libraries use different CUDA contexts", "ContextWarning"),
    "CG817": ("a CUDA context could not be created", "ContextWarning"),
    "CG818": ("a forked process uses CUDA, which its parent had initialized", "ForkWarning"),
    "CG819": (
        "an environment variable was set after it was read",
        "LateEnvironmentWarning",
    ),
    "CG822": ("CUDA was used before a call that needs it unused", "ContextWarning"),
}
DETECTORS = {
    "detector:CudaDetector": (
        "begin",
        "ctypes_comes",
        "unseen",
        "before_load",
        "around_import",
        "mapped",
        "loaded",
        "error_passes",
        "forget",
        *(f"imported:{module}" for module in dict.fromkeys(one.module for one in EXPECTATIONS)),
    ),
}
PREREQUISITES = {"context": "repair:prepare"}
INITIALIZERS = "facts:INITIALIZERS"
KNOWN_ERRORS = "known_errors:EXPLAINER"
# Id -> what follows from it, what to do, and the page about it.
ABOUT: dict[str, tuple[str, str, str]] = {
    "CG814": (
        (
            "later changes of CUDA_VISIBLE_DEVICES have no effect, and forked processes cannot use "
            "CUDA."
        ),
        "move the first use of CUDA, if either matters to your program",
        "howto/cuda.md",
    ),
    "CG815": (
        "the context takes memory on that device, in each process.",
        "choose the device before the first use of CUDA, if it is the wrong one",
        "howto/cuda.md",
    ),
    "CG817": (
        "libraries create a context when they need one, and may fail in the same way.",
        "fix the error that the message names",
        "howto/cuda.md",
    ),
    "CG819": (
        (
            "the new value is not used. The variable is read once: when a library is loaded or "
            "CUDA is initialized."
        ),
        "set it before Python starts, or above the import that the message names",
        "howto/cuda.md",
    ),
}
