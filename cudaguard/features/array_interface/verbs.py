"""The actions of rules about arrays with ``__cuda_array_interface__``."""

from __future__ import annotations

from cudaguard.core.verbs import CLASS, FUNCTION, PARAMETER, Parameter, Verb

VERBS = (
    Verb(
        "normalize_argument",
        FUNCTION,
        "Image.__init__",
        "Pass the array given as first argument through cudaguard.normalize.",
        parameters=(Parameter("parameter", PARAMETER, "buffer"),),
    ),
    Verb(
        "fix_array_interface",
        CLASS,
        "DeviceNDArray",
        "Correct the __cuda_array_interface__ that a class exports.",
    ),
)
