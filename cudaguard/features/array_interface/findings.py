"""Findings about arrays on their way from one library to another."""

from __future__ import annotations

from functools import partial

from cudaguard.core.findings import Kind
from cudaguard.features.array_interface.consumers import CONSUMERS
from cudaguard.model import TYPE_CHECKING

if TYPE_CHECKING:
    from cudaguard.core.findings import Finding
    from cudaguard.errors import ArrayInterfaceError
    from cudaguard.features.array_interface.interface import EntryError

_LINK = "https://nvidia.github.io/numba-cuda/user/cuda_array_interface.html"
_kind = partial(Kind, category="ArrayInterfaceWarning", page="howto/arrays.md", links=(_LINK,))

WAITED = _kind(
    "CG831",
    "an array was passed to a library that ignores its stream",
    severity="info",
    consequence="Without a wait it would read data before it is written. cudaguard waited for the "
    "stream.",
    remedy="do nothing; or name the stream, if the array does not: normalize(..., stream=...)",
)
NOT_CONFORMING = _kind(
    "CG833",
    "an array interface does not conform to the specification",
    consequence="Some consumers may refuse it, others misread it.",
    remedy="correct the fields that the message names, or pass cudaguard.normalize(array)",
)
CONVERTED = _kind(
    "CG834",
    "an array was converted to a form that its reader accepts",
    severity="info",
    consequence="Otherwise the library may refuse or misread it.",
    remedy="do nothing",
)
AS_IT_IS = _kind(
    "CG835",
    "an array cannot be converted to a form that its reader accepts",
    consequence="The library may refuse the array, or compute with wrong or unfinished data.",
    remedy="correct the field that the message names, or pass a copy",
)
NO_ENTRY = Kind(
    "CG836",
    "a function that a rule names does not exist",
    consequence="The rule does nothing here: arrays are passed unchanged.",
    remedy="update cudaguard if the rule is built in, else correct it; or switch the rule off",
    page="reference/rules.md",
)


def waited(producer: str, consumer: str, stream: int) -> Finding:
    """The host waited for a stream that a consumer ignores; `producer` is the array's class."""
    return WAITED.found(
        f"{consumer} ignores the stream of {producer}: the host waited for stream {stream}.",
        consequence=f"Otherwise {consumer} could read the data before it is written.",
        remedy="",
    )


def not_conforming(producer: str, fault: EntryError) -> Finding:
    """An entry of the array interface of a class is not as the specification has it."""
    what = f"{fault.field} of {producer} is {fault.value}: {fault.rule}."
    evidence = f"{fault.field}: {fault.value}"
    if fault.can_be_corrected:
        return NOT_CONFORMING.found(what, evidence, remedy=fault.remedy)
    return NOT_CONFORMING.found(
        what,
        evidence,
        severity="error",
        consequence="cudaguard cannot tell what it means, so it cannot correct it.",
        remedy=fault.remedy,
    )


def converted(producer: str, consumer: str, changes: str, rule: str, *, is_done: bool) -> Finding:
    """An array was converted to a form that a consumer reads correctly, or ought to be."""
    if is_done:
        return corrected(f"{producer} for {consumer}", changes, rule)
    is_known = any(consumer == known.name for known in CONSUMERS)
    named = f', consumer="{consumer}"' if is_known else ""
    return CONVERTED.found(
        f"{consumer} may not read {producer} correctly without this change: {changes}.",
        rule=rule,
        severity="warning",
        consequence=f"{consumer} may refuse or misread it.",
        remedy=f"set CUDAGUARD=fix, or pass cudaguard.normalize(array{named})",
    )


def corrected(what: str, changes: str, rule: str) -> Finding:
    """An array, or what a class exports, was corrected, as a rule asks for it."""
    return CONVERTED.found(f"cudaguard corrected {what}: {changes}.", rule=rule, remedy="")


def as_it_is(producer: str, consumer: str, error: ArrayInterfaceError) -> Finding:
    """An array has no form that its consumer reads correctly: `error` says why."""
    return AS_IT_IS.found(
        f"{consumer} may not read the {error.field} of {producer} correctly.",
        f"{error.field} is {error.value}: {error.rule}",
        remedy=error.remedy,
    )


def no_such_entry(rule: str, place: str, error: Exception) -> Finding:
    """A rule names a function that the module does not have, or that cannot be replaced."""
    how = "update cudaguard" if rule.startswith("CG") else "correct the rule"
    return NO_ENTRY.found(
        f"Rule {rule} names {place}, which does not exist here or cannot be replaced.",
        f"{type(error).__name__}: {error}",
        rule=rule,
        remedy=f"{how}, or switch it off: CUDAGUARD_RULES=-{rule}",
    )
