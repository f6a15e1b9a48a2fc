"""What this feature has for the core. After a change: python .ci/make_index.py."""

from __future__ import annotations

from cudaguard.core.verbs import CLASS, FUNCTION, PARAMETER, Parameter, Verb

VERBS = (
    Verb(
        "normalize_argument",
        FUNCTION,
        "Image.__init__",
        "Pass the array given as first argument through cudaguard.normalize.",
        {"after": "repair.arguments:put_up"},
        parameters=(Parameter("parameter", PARAMETER, "buffer"),),
    ),
    Verb(
        "fix_array_interface",
        CLASS,
        "DeviceNDArray",
        "Correct the __cuda_array_interface__ that a class exports.",
        {"after": "repair.arguments:put_up"},
    ),
)

CATEGORY = "ArrayInterfaceWarning"  # of warnings about what its rules have left undone

IDS = {
    "CG831": (
        "an array was handed to a library that does not look at its stream",
        "ArrayInterfaceWarning",
    ),
    "CG832": (
        "a read-only array was handed to a library that does not look at that",
        "ArrayInterfaceWarning",
    ),
    "CG833": ("an array interface does not conform to the specification", "ArrayInterfaceWarning"),
    "CG834": (
        "an array was converted to a form that a library reads correctly",
        "ArrayInterfaceWarning",
    ),
    "CG835": (
        "an array cannot be converted to a form that a library reads correctly",
        "ArrayInterfaceWarning",
    ),
    "CG836": ("an entry point that a rule names is not there", ""),
}
KNOWN_ERRORS = "known_errors:EXPLAINER"
