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
    "CG852": ("a compiled call stored a tensor in its module", "GraphWarning"),
    "CG853": ("a later call overwrote a result that is still held", "GraphWarning"),
    "CG854": ("a result contains tensors that are not copied", "GraphWarning"),
    "CG855": ("a stored tensor gets a new address at every call", "GraphWarning"),
    "CG896": ("torch lacks a setting that a rule needs", "GraphWarning"),
}
KNOWN_ERRORS = "known_errors:EXPLAINER"
# Id -> what follows from it, what to do, and the page about it.
ABOUT: dict[str, tuple[str, str, str]] = {
    "CG852": (
        "if that call uses CUDA graphs, a later one overwrites the tensor.",
        "use cudaguard.graph_safe(fn, stored_tensors='copy')",
        "howto/graphs.md",
    ),
    "CG853": (
        "the next read of that result returns the values of another call.",
        "keep a copy (result.clone()), or use cudaguard.graph_safe(fn)",
        "howto/graphs.md",
    ),
    "CG854": (
        "a later call of the compiled function overwrites them.",
        "return them in a dictionary, list, tuple or dataclass, or copy them",
        "howto/graphs.md",
    ),
    "CG855": (
        "torch records the graph again at each call, which takes time and memory.",
        "hold a copy of the tensor instead of the tensor itself",
        "howto/graphs.md",
    ),
    "CG896": (
        "results of callables that use CUDA graphs are overwritten as before.",
        "use fn = cudaguard.graph_safe(fn), or torch 2.14 or later",
        "howto/graphs.md",
    ),
}
