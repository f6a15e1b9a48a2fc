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
        {"after": "repair:put_up"},
        parameters=(_TARGET,),
        grades=("opt-in",),
    ),
    Verb(
        "clone_outputs",
        SWITCH,
        True,
        "Return copies of what the compiled target returns.",
        {"after": "repair:put_up"},
        parameters=(_TARGET,),
        grades=("opt-in",),
    ),
)

CATEGORY = "GraphWarning"  # of warnings about what its rules have left undone

IDS = {
    "CG851": ("the output of a CUDA graph was read after it was overwritten", "GraphWarning"),
    "CG853": ("a later call overwrote a result that is still held", "GraphWarning"),
    "CG854": ("a result contains tensors that are not copied", "GraphWarning"),
}
KNOWN_ERRORS = "known_errors:EXPLAINER"
# Id -> what follows from it, what to do, and the page about it.
ABOUT: dict[str, tuple[str, str, str]] = {
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
}
