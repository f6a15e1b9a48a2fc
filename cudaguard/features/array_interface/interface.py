"""The CUDA array interface, versions 0 to 3: what each entry of the dictionary means.

Source: https://nvidia.github.io/numba-cuda/user/cuda_array_interface.html and, for ``typestr`` and
``descr``, https://numpy.org/doc/stable/reference/arrays.interface.html.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import NamedTuple

from cudaguard.errors import ArrayInterfaceError
from cudaguard.files import theirs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NEWEST = 3  # version of the specification
LEGACY_STREAM, PER_THREAD_STREAM = 1, 2  # what 1 and 2 mean as a stream; 0 is forbidden
ADDRESS_SPACE = 1 << 64

# What the specification says of each entry, as a clause for messages.
SPECIFICATION: dict[str, str] = {
    "shape": "it must be a tuple of integers, none of them negative",
    "typestr": "it must be a string of byte order (<, > or |), kind and size in bytes, as in '<f4'",
    "data": "it must be a tuple of the address (an integer, 0 for an array without elements) and a "
    "bool that says whether it is read-only",
    "version": f"it must be an integer, and {NEWEST} is the newest version there is",
    "strides": "it must be absent, None, or a tuple with the bytes to step in each dimension",
    "descr": "it must be a list of tuples, as in NumPy's array interface",
    "mask": "it must be absent, None, or an array that has a __cuda_array_interface__ itself",
    "stream": "it must be absent, None, or the number of a stream: 1 for the legacy default "
    "stream, 2 for the per-thread one, a handle for others; 0 is forbidden, being ambiguous",
}


class _Auto:
    """The one value of its kind: take what the producer says."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "AUTO"


AUTO = _Auto()

_TYPESTR = re.compile(r"([<>|])([tbiufcmMSUV])([1-9][0-9]{0,8})((?:\[[0-9a-zA-Z/]{1,20}\])?)")
_SIZES = {
    "b": (1,),
    "i": (1, 2, 4, 8),
    "u": (1, 2, 4, 8),
    "f": (2, 4, 8, 12, 16),
    "c": (8, 16, 24, 32),
    "m": (8,),
    "M": (8,),
}
NATIVE = "<" if sys.byteorder == "little" else ">"


@lru_cache(maxsize=128)
def item_size(typestr: str) -> int:
    """Return the bytes that one element takes, -1 if `typestr` is not legal.

    A bit field (kind ``t``) takes the bytes that hold it.
    """
    match = _TYPESTR.fullmatch(typestr)
    if match is None:
        return -1
    order, kind, digits, unit = match.groups()
    size = int(digits)
    if (unit and kind not in "mM") or size not in _SIZES.get(kind, (size,)):
        return -1
    if order == "|" and size > 1 and kind in _SIZES:  # its bytes do have an order
        return -1
    if kind == "t":
        return -(-size // 8)
    return size * 4 if kind == "U" else size


def extent(shape: tuple[int, ...], strides: tuple[int, ...] | None, size: int) -> tuple[int, int]:
    """Return the bytes that an array reaches from, and up to, relative to its address.

    Args:
        shape: Elements in each dimension.
        strides: Bytes to step in each dimension; None for C order.
        size: Bytes of one element.
    """
    if 0 in shape:
        return 0, 0
    if strides is None:
        end = size
        for count in shape:
            end *= count
        return 0, end
    low, high = 0, size
    for count, stride in zip(shape, strides):
        if stride < 0:
            low += (count - 1) * stride
        else:
            high += (count - 1) * stride
    return low, high


def in_c_order(shape: tuple[int, ...], strides: tuple[int, ...] | None, size: int) -> bool:
    """Return True if the elements are contiguous, the last dimension running fastest."""
    if strides is None or 0 in shape:
        return True
    step = size
    for count, stride in zip(reversed(shape), reversed(strides)):
        if count != 1:
            if stride != step:
                return False
            step *= count
    return True


# --- What can be wrong with a CUDA array interface, and how it is put into words ------------------

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
