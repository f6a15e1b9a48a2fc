"""What this feature has for the core. After a change: python .ci/make_index.py."""

from __future__ import annotations

from cudaguard.core.rule_check import MODULE, TEXT, VARIABLE, Parameter, Verb
from cudaguard.features.cuda_init.facts import EXPECTATIONS

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
        *dict.fromkeys(f"imported:{one.module}" for one in EXPECTATIONS),
    ),
}
PREREQUISITES = {"context": "repair:create_if_allowed"}
INITIALIZERS = "facts:INITIALIZERS"
# File beside the package's, and the text in it by which that build does nothing with CUDA.
BUILT_WITHOUT = {"torch": ("version.py", "\ncuda: Optional[str] = None\n")}
KNOWN_ERRORS = "known_errors:EXPLAINER"
