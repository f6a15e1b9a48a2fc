"""What this feature has for the core. After a change: python .ci/make_index.py."""

from __future__ import annotations

from cudaguard.core.rule_check import CLASS, FUNCTION, PARAMETER, Parameter, Verb

VERBS = (
    Verb(
        "normalize_argument",
        FUNCTION,
        "Image.__init__",
        "Pass the array given as first argument through cudaguard.normalize.",
        {"after": "repair:put_up"},
        parameters=(Parameter("parameter", PARAMETER, "buffer"),),
    ),
    Verb(
        "fix_array_interface",
        CLASS,
        "DeviceNDArray",
        "Correct the __cuda_array_interface__ that a class exports.",
        {"after": "repair:put_up"},
    ),
)

CATEGORY = "ArrayInterfaceWarning"  # of warnings about what its rules have left undone

IDS = {
    "CG831": (
        "an array was passed to a library that ignores its stream",
        "ArrayInterfaceWarning",
    ),
    "CG832": (
        "a read-only array was passed to a library that may write to it",
        "ArrayInterfaceWarning",
    ),
    "CG833": ("an array interface does not conform to the specification", "ArrayInterfaceWarning"),
    "CG834": (
        "an array was converted to a form that its reader accepts",
        "ArrayInterfaceWarning",
    ),
    "CG835": (
        "an array cannot be converted to a form that its reader accepts",
        "ArrayInterfaceWarning",
    ),
    "CG836": ("a function that a rule names does not exist", ""),
}
KNOWN_ERRORS = "known_errors:EXPLAINER"
# Id -> what follows from it, what to do, and the page about it.
ABOUT: dict[str, tuple[str, str, str]] = {
    "CG831": (
        (
            "without a wait it would read data before it is written. cudaguard waited for the "
            "stream."
        ),
        "do nothing; or name the stream, if the array does not: normalize(..., stream=...)",
        "howto/arrays.md",
    ),
    "CG832": (
        "it may write to memory that the owner expects to be constant.",
        "pass a copy if it writes",
        "howto/arrays.md",
    ),
    "CG833": (
        "strict readers may refuse the array, others misread it.",
        "correct the fields that the message names, or pass cudaguard.normalize(array)",
        "howto/arrays.md",
    ),
    "CG834": (
        "the library received the same data in a form that it reads correctly.",
        "do nothing",
        "howto/arrays.md",
    ),
    "CG835": (
        "the library receives the array unchanged, and may refuse or misread it.",
        "correct the field that the message names, or pass a copy",
        "howto/arrays.md",
    ),
    "CG836": (
        "the rule does nothing in this release of the package.",
        "update cudaguard if the rule is built in, else correct it; or switch the rule off",
        "reference/rules.md",
    ),
}
