"""The actions of rules about CUDA graphs."""

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
        grades=("opt-in",),
    ),
    Verb(
        "disable_cuda_graphs",
        SWITCH,
        True,
        "Compile the target without CUDA graphs.",
        parameters=(_TARGET,),
        grades=("opt-in",),
    ),
    Verb(
        "clone_outputs",
        SWITCH,
        True,
        "Return copies of what the compiled target returns.",
        parameters=(_TARGET,),
        grades=("opt-in",),
    ),
    Verb(
        "copy_held_outputs",
        SWITCH,
        True,
        "Copy outputs that are returned, stored or held before they are overwritten.",
        parameters=(_TARGET_OR_ALL,),
        grades=("opt-in",),
    ),
)
