"""The actions of rules about GPUs that are newer than the installed compilers."""

from __future__ import annotations

from cudaguard.core.verbs import SWITCH, Verb

VERBS = (
    Verb(
        "preload_newer_nvrtc",
        SWITCH,
        True,
        "Load an installed NVRTC that supports the GPUs here before torch is imported.",
    ),
    Verb(
        "use_newer_ptxas",
        SWITCH,
        True,
        "Have Triton call an installed ptxas that supports the GPUs here.",
        grades=("opt-in",),
    ),
    Verb(
        "disable_fusers",
        SWITCH,
        True,
        "Switch off the fusers of TorchScript for GPUs.",
        grades=("opt-in",),
    ),
)
