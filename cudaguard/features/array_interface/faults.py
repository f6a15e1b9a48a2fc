"""What can be wrong with a CUDA array interface, and how it is put into words."""

from __future__ import annotations

from typing import NamedTuple

from cudaguard.errors import ArrayInterfaceError
from cudaguard.features.array_interface.interface import SPECIFICATION
from cudaguard.files import theirs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LONGEST = 60  # characters of a value in a message
INTERFACE = "__cuda_array_interface__"
CORRECT = "correct what the producer exports"
GIVE_STREAM = "name the stream on which the pending work was started, or None where none is pending"


class Fault(NamedTuple):
    """One thing that is wrong with an array interface.

    Args:
        field: The entry of the dictionary, or ``__cuda_array_interface__`` for all of it.
        value: What stands there, in short.
        rule: What should, as a clause.
        remedy: What to do, as an imperative.
        can_be_mended: True if there is one thing only that it can mean.
    """

    field: str
    value: str
    rule: str
    remedy: str
    can_be_mended: bool = False


class RefusedError(Exception):
    """An interface that cannot be handed over; inside the package only.

    Args:
        fault: Why.
    """

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault


def refused(
    field: str, value: object, rule: str = "", remedy: str = CORRECT, *, adjective: str = ""
) -> RefusedError:
    """Return the error for a value; without a rule, what the specification says of the field."""
    text = shown(value) + (f" ({adjective})" if adjective else "")
    return RefusedError(Fault(field, text, rule or SPECIFICATION[field], remedy))


def shown(value: object, depth: int = 2) -> str:
    """Return a value for a message: never long, and foreign code is not run for it."""
    kind = type(value)
    if kind is int:
        bits = value.bit_length()  # type: ignore[attr-defined]  # the type is tested
        return repr(value) if bits <= 128 else f"an integer of {bits} bits"
    if value is None or kind in (bool, float):
        return repr(value)
    if kind in (str, bytes):
        text = repr(value[: LONGEST + 1])  # type: ignore[index]  # the type is tested
        return text if len(text) <= LONGEST + 2 else f"{text[: LONGEST - 3]}..."
    if kind in (tuple, list) and depth:
        items: Any = value
        parts = [shown(item, depth - 1) for item in items[:6]] + ["..."] * (len(items) > 6)
        inside = ", ".join(parts) + ("," if kind is tuple and len(items) == 1 else "")
        return f"({inside})" if kind is tuple else f"[{inside}]"
    return f"an object of type {name_of(kind)}"


def name_of(kind: type) -> str:
    """Return the name of a class for a message, with its module."""
    try:
        module, name = kind.__module__, kind.__qualname__
    except theirs(Exception):  # of a metaclass that is not ours
        return type.__repr__(kind)
    return name if module == "builtins" else f"{module}.{name}"


def error_of(fault: Fault, kind: type, *, is_stream_given: bool = False) -> ArrayInterfaceError:
    """Return the error that a program is given.

    Args:
        fault: What is wrong.
        kind: The class of the array.
        is_stream_given: True if the caller, and not the array, named the stream.
    """
    entry = "" if fault.field == INTERFACE else f"[{fault.field!r}]"
    where, remedy = f"{INTERFACE}{entry} of {name_of(kind)}", fault.remedy
    if is_stream_given and fault.field == "stream":
        where = f"The argument stream, given for an array of {name_of(kind)},"
        remedy = GIVE_STREAM if remedy == CORRECT else remedy
    return ArrayInterfaceError(
        f"{where} is {fault.value}: {fault.rule}. Remedy: {remedy}.",
        field=fault.field,
        value=fault.value,
        rule=fault.rule,
        remedy=remedy,
    )
