"""What this feature has for the core. After a change: python .ci/make_index.py."""

from __future__ import annotations

from cudaguard.core.verbs import SWITCH, TARGET, TARGET_OR_ALL, Parameter, Verb

_TARGET = Parameter("target", TARGET, "pkg.models.Encoder")
_TARGET_OR_ALL = Parameter(
    "target", TARGET_OR_ALL, "pkg.models.Encoder", watched={"*": "torch._inductor.config"}
)

VERBS = (
    Verb(
        "record_compile_args",
        SWITCH,
        True,
        "Record the arguments of torch.compile, for cudaguard.graph_safe.",
        {"after": "repair.compilations:put_up"},
        grades=("opt-in",),
    ),
    Verb(
        "disable_cuda_graphs",
        SWITCH,
        True,
        "Compile the target without CUDA graphs.",
        {"after": "repair.compilations:put_up"},
        parameters=(_TARGET,),
        grades=("opt-in",),
    ),
    Verb(
        "clone_outputs",
        SWITCH,
        True,
        "Return copies of what the compiled target returns.",
        {"after": "repair.compilations:put_up"},
        parameters=(_TARGET,),
        grades=("opt-in",),
    ),
    Verb(
        "copy_held_outputs",
        SWITCH,
        True,
        "Copy outputs that are returned, stored or held before they are overwritten.",
        {"after": "repair.compilations:put_up"},
        parameters=(_TARGET_OR_ALL,),
        grades=("opt-in",),
    ),
)

CATEGORY = "GraphWarning"  # of warnings about what its rules have left undone

IDS = {
    "CG851": ("the output of a CUDA graph was read after it was overwritten", "GraphWarning"),
    "CG852": ("a compiled call has left a tensor in a container of its module", "GraphWarning"),
    "CG853": ("a result that is held was overwritten by a later call", "GraphWarning"),
    "CG854": ("a result has tensors that are not copied", "GraphWarning"),
    "CG855": ("a stored tensor gets a new address at every call", "GraphWarning"),
    "CG896": ("torch lacks the setting that a rule is to change", "GraphWarning"),
}
KNOWN_ERRORS = "known_errors:EXPLAINER"
