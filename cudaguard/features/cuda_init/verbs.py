"""The actions of rules about CUDA contexts and device memory."""

from __future__ import annotations

from cudaguard.core.verbs import MODULE, TEXT, VARIABLE, Parameter, Verb

VERBS = (
    Verb(
        "set_env",
        VARIABLE,
        "XLA_PYTHON_CLIENT_PREALLOCATE",
        "Set an environment variable before the import, unless it is set.",
        parameters=(Parameter("value", TEXT, "false"),),
        grades=("opt-in",),
    ),
    Verb(
        "replace_module",
        MODULE,
        "pycuda.autoprimaryctx",
        "Import another module and use it as the watched one.",
        grades=("opt-in",),
    ),
)
