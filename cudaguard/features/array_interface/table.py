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
# Id -> what follows from it, what to do, and the page about it.
ABOUT: dict[str, tuple[str, str, str]] = {
    "CG831": (
        (
            "without a wait it would read data that is not there yet; the guard has waited in its "
            "place."
        ),
        "none is needed; name the stream in normalize(..., stream=...) where the array does not",
        "howto/arrays.md",
    ),
    "CG832": (
        "it may write to memory that its owner takes for constant.",
        "hand over a copy where it writes",
        "howto/arrays.md",
    ),
    "CG833": (
        "strict readers refuse the array, others misread it.",
        "follow what the finding says of each field, or hand over cudaguard.normalize(array)",
        "howto/arrays.md",
    ),
    "CG834": (
        "the library got the same data in a form that it reads correctly.",
        "none is needed",
        "howto/arrays.md",
    ),
    "CG835": (
        "the library gets the array as it is, and refuses or misreads it.",
        "follow what the finding says of the field, or hand over a copy",
        "howto/arrays.md",
    ),
    "CG836": (
        "the rule does nothing in this release of the package.",
        "update cudaguard, or switch the rule off",
        "reference/rules.md",
    ),
}
