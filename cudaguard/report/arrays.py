"""The wording of what is seen of arrays on their way from one library to another."""

from __future__ import annotations

from cudaguard.model import Finding

ORDERED, READ_ONLY, NOT_CONFORMING = "CG831", "CG832", "CG833"
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
        can_be_mended: Is there one thing only that it can mean?
    """
    return Finding(
        NOT_CONFORMING,
        f"{field} of {producer} is {value}: {rule}.",
        severity="warn" if can_be_mended else "error",
        evidence=(f"{field}: {value}",),
        consequence="some consumers refuse it, others misread it."
        if can_be_mended
        else "what it means would be a guess.",
        remedy=remedy,
        links=(_LINK,),
    )
