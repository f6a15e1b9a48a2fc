"""The wording of what is seen of arrays on their way from one library to another."""

from __future__ import annotations

from cudaguard.features.array_interface.consumers import known_consumers
from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.errors import ArrayInterfaceError

ORDERED, READ_ONLY, NOT_CONFORMING = "CG831", "CG832", "CG833"
MENDED, AS_IT_IS, NO_ENTRY = "CG834", "CG835", "CG836"
_LINK = "https://nvidia.github.io/numba-cuda/user/cuda_array_interface.html"


def ordered(producer: str, consumer: str, how: str) -> Finding:
    """A consumer that ignores streams was made to wait.

    Args:
        producer: Class of the array.
        consumer: Its name.
        how: What was done, as a clause.
    """
    return Finding(
        ORDERED,
        f"{consumer} ignores the stream of {producer}: {how}.",
        severity="info",
        consequence=f"otherwise {consumer} could read the data before it is written.",
        links=(_LINK,),
    )


def may_be_written(producer: str, consumer: str) -> Finding:
    """A consumer was given an array that is read-only, and does not look at that."""
    return Finding(
        READ_ONLY,
        f"{consumer} ignores that {producer} is read-only.",
        consequence="a write in place would change data that its owner expects to be constant.",
        remedy=f"do not write to it in {consumer}, or pass a copy",
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
        consequence="some consumers may refuse it, others misread it."
        if can_be_mended
        else "cudaguard cannot tell what it means, so it cannot correct it.",
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
    changes = "; ".join(fields)
    if is_done:
        return Finding(
            MENDED,
            f"cudaguard corrected {producer} for {consumer}: {changes}.",
            rule=rule,
            severity="info",
            consequence=f"otherwise {consumer} may refuse or misread it.",
            links=(_LINK,),
        )
    named = f', consumer="{consumer}"' if consumer in known_consumers() else ""
    return Finding(
        MENDED,
        f"{consumer} may not read {producer} correctly without this change: {changes}.",
        rule=rule,
        consequence=f"{consumer} may refuse or misread it.",
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
        f"cudaguard corrected the array interface of {producer}: {'; '.join(fields)}.",
        rule=rule,
        severity="info",
        consequence="otherwise some libraries may refuse or misread it.",
        links=(_LINK,),
    )


def handed_over_as_it_is(producer: str, consumer: str, error: ArrayInterfaceError) -> Finding:
    """An array has no form that its consumer reads correctly.

    Args:
        producer: Class of the array.
        consumer: Its name.
        error: Why, and what to do.
    """
    return Finding(
        AS_IT_IS,
        f"{consumer} may not read the {error.field} of {producer} correctly.",
        evidence=(f"{error.field} is {error.value}: {error.rule}",),
        consequence=f"{consumer} may refuse or misread it.",
        remedy=error.remedy,
        links=(_LINK,),
    )


def no_such_entry(rule: str, place: str, error: Exception) -> Finding:
    """A rule names an entry point that the module does not have."""
    return Finding(
        NO_ENTRY,
        f"Rule {rule} names {place}, which does not exist here or cannot be replaced.",
        rule=rule,
        evidence=(f"{type(error).__name__}: {error}",),
        consequence="arrays are passed unchanged.",
        remedy=f"{'update cudaguard' if rule.startswith('CG') else 'correct the rule'}, or switch "
        f"it off: CUDAGUARD_RULES=-{rule}",
    )


PUT_UP = {
    "normalize_argument": "receives normalized arrays",
    "fix_array_interface": "exports a corrected array interface",
}
