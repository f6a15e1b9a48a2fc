"""What this feature has for the core. After a change: python .ci/make_index.py."""

from __future__ import annotations

from cudaguard.core.rule_check import SWITCH, TARGET, Parameter, Verb

_TARGET = Parameter("target", TARGET, "pkg.models.Encoder")

VERBS = (
    Verb(
        "disable_cuda_graphs",
        SWITCH,
        True,
        "Compile the target without CUDA graphs.",
        {"after": "repair:replace_compile"},
        parameters=(_TARGET,),
        grades=("opt-in",),
    ),
    Verb(
        "clone_outputs",
        SWITCH,
        True,
        "Return copies of what the compiled target returns.",
        {"after": "repair:replace_compile"},
        parameters=(_TARGET,),
        grades=("opt-in",),
    ),
)

CATEGORY = "GraphWarning"  # of warnings about what its rules have left undone

KNOWN_ERRORS = "known_errors:EXPLAINER"
