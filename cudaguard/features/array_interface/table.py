"""What this feature has for the core. After a change: python .ci/make_index.py."""

from __future__ import annotations

from cudaguard.core.rule_check import CLASS, FUNCTION, PARAMETER, Parameter, Verb

VERBS = (
    Verb(
        "normalize_argument",
        FUNCTION,
        "Image.__init__",
        "Pass the array given as first argument through cudaguard.normalize.",
        {"after": "repair:replace_attributes"},
        parameters=(Parameter("parameter", PARAMETER, "buffer"),),
    ),
    Verb(
        "fix_array_interface",
        CLASS,
        "DeviceNDArray",
        "Correct the __cuda_array_interface__ that a class exports.",
        {"after": "repair:replace_attributes"},
    ),
)

CATEGORY = "ArrayInterfaceWarning"  # of warnings about what its rules have left undone
