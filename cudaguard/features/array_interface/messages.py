"""The wording of what is seen of arrays on their way from one library to another."""

from __future__ import annotations

from cudaguard.features.array_interface.policy.profiles import known_consumers
from cudaguard.model import Finding

ORDERED, READ_ONLY, NOT_CONFORMING = "CG831", "CG832", "CG833"
MENDED, AS_IT_IS, NO_ENTRY = "CG834", "CG835", "CG836"
_LINK = "https://nvidia.github.io/numba-cuda/user/cuda_array_interface.html"


def ordered(producer: str, consumer: str, how: str) -> Finding:
    """A consumer that does not heed streams was made to wait.

    Args:
        producer: Class of the array.
        consumer: Its name.
        how: What was done, as a clause.
    """
    return Finding(
        ORDERED,
        f"{consumer} does not look at the stream of a {producer}: {how}.",
        severity="info",
        consequence="without that it could read data that is not there yet.",
        links=(_LINK,),
    )


def may_be_written(producer: str, consumer: str) -> Finding:
    """A consumer was given an array that is read-only, and does not look at that."""
    return Finding(
        READ_ONLY,
        f"A {producer} is read-only, and {consumer} does not look at that.",
        consequence="what is written there changes data that its owner takes for constant.",
        remedy=f"only read it in {consumer}, or hand over a copy",
        links=(_LINK,),
    )


def not_conforming(
    producer: str, field: str, value: str, rule: str, remedy: str, *, can_be_mended: bool
) -> Finding:
    """An entry of an array interface is not as the specification has it.

    Args:
        producer: Class of the array.
        field: The entry, or ``__cuda_array_interface__`` itself.
        value: What stands there, in short.
        rule: What the specification says.
        remedy: What to do.
        can_be_mended: True if there is one thing only that it can mean.
    """
    return Finding(
        NOT_CONFORMING,
        f"{field} of {producer} is {value}: {rule}.",
        severity="warning" if can_be_mended else "error",
        evidence=(f"{field}: {value}",),
        consequence="some consumers refuse it, others misread it."
        if can_be_mended
        else "what it means would be a guess.",
        remedy=remedy,
        links=(_LINK,),
    )


def mended(
    producer: str, consumer: str, fields: tuple[str, ...], rule: str, is_done: bool
) -> Finding:
    """An array was converted to a form that a consumer reads correctly, or ought to be.

    Args:
        producer: Class of the array.
        consumer: Its name.
        fields: What is different in each entry, as clauses.
        rule: Id of the rule that asks for it.
        is_done: False where the mode forbids repairs.
    """
    what = f"{consumer} does not read a {producer} correctly without this change"
    changes = "; ".join(fields)
    if is_done:
        return Finding(
            MENDED,
            f"A {producer} was handed to {consumer} in another form: {changes}.",
            rule=rule,
            severity="info",
            consequence=f"{what}.",
            links=(_LINK,),
        )
    named = f', consumer="{consumer}"' if consumer in known_consumers() else ""
    return Finding(
        MENDED,
        f"{what}: {changes} would do.",
        rule=rule,
        consequence=f"{consumer} refuses it, or takes it for something else.",
        remedy=f"set CUDAGUARD=fix, or pass cudaguard.normalize(array{named})",
        links=(_LINK,),
    )


def corrected(producer: str, fields: tuple[str, ...], rule: str) -> Finding:
    """What a class exports was corrected.

    Args:
        producer: The class.
        fields: What is different in each entry, as clauses.
        rule: Id of the rule that asks for it.
    """
    return Finding(
        MENDED,
        f"What a {producer} exports was corrected: {'; '.join(fields)}.",
        rule=rule,
        severity="info",
        consequence="libraries refuse it as it is, or take it for something else.",
        links=(_LINK,),
    )


def handed_over_as_it_is(producer: str, consumer: str, field: str, error: str) -> Finding:
    """An array has no form that its consumer reads correctly.

    Args:
        producer: Class of the array.
        consumer: Its name.
        field: The entry of the interface that prevents it.
        error: Why, and what to do.
    """
    return Finding(
        AS_IT_IS,
        f"A {producer} was handed to {consumer}, which does not read its {field} correctly.",
        evidence=(error,),
        consequence=f"{consumer} refuses it, or takes it for something else.",
        remedy="see the evidence",
        links=(_LINK,),
    )


def no_such_entry(rule: str, place: str, error: Exception) -> Finding:
    """A rule names an entry point that the module does not have."""
    return Finding(
        NO_ENTRY,
        f"Rule {rule} is about {place}, which is not there or cannot be replaced.",
        rule=rule,
        evidence=(f"{type(error).__name__}: {error}",),
        consequence="arrays are handed over as they are.",
        remedy=f"switch it off with disable=[{rule!r}], or correct its path for this version",
    )


PUT_UP = {
    "normalize_argument": "is given normalized arrays",
    "fix_array_interface": "has its array interface corrected",
}
