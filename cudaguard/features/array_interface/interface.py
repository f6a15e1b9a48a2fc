"""The CUDA array interface, versions 0 to 3: what each entry of the dictionary means.

A value that says the same in another form is converted (a list for a tuple, a NumPy integer for an
int, ``f4`` for ``<f4``). Nothing is guessed: what has no legal form is an `EntryError`.

Source: https://nvidia.github.io/numba-cuda/user/cuda_array_interface.html and, for ``typestr`` and
``descr``, https://numpy.org/doc/stable/reference/arrays.interface.html.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from itertools import islice
from operator import index

from cudaguard.errors import ArrayInterfaceError
from cudaguard.files import theirs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

INTERFACE = "__cuda_array_interface__"
NEWEST = 3  # version of the specification
LEGACY_STREAM, PER_THREAD_STREAM = 1, 2  # what 1 and 2 mean as a stream; 0 is forbidden
ADDRESS_SPACE = 1 << 64
MOST_DIMENSIONS = 64  # of an array in NumPy 2; more is a mistake, or meant to take for ever
MISSING = object()

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

# --- What can be wrong, and how it is put into words ----------------------------------------------

CORRECT = "correct what the producer exports"
_LONGEST = 60  # characters of a value in a message
_GIVE_STREAM = (
    "name the stream on which the pending work was started, or None where none is pending"
)


class EntryError(Exception):
    """One thing that is wrong with an array interface.

    Args:
        field: The entry of the dictionary, or ``__cuda_array_interface__`` for all of it.
        value: What stands there.
        rule: What should, as a clause; left out: what the specification says of the entry.
        remedy: What to do, as an imperative.
        can_be_corrected: True if there is one thing only that it can mean.
    """

    def __init__(
        self,
        field: str,
        value: object,
        rule: str = "",
        remedy: str = CORRECT,
        *,
        can_be_corrected: bool = False,
    ) -> None:
        super().__init__(field)
        self.field, self.value = field, shown(value)
        self.rule, self.remedy = rule or SPECIFICATION[field], remedy
        self.can_be_corrected = can_be_corrected

    def as_error(self, kind: type, *, is_stream_given: bool = False) -> ArrayInterfaceError:
        """Return the error that a program is given for an array of that class.

        Args:
            kind: The class.
            is_stream_given: True if the caller, and not the array, named the stream.
        """
        entry = "" if self.field == INTERFACE else f"[{self.field!r}]"
        where, remedy = f"{INTERFACE}{entry} of {name_of(kind)}", self.remedy
        if is_stream_given and self.field == "stream":
            where = f"The argument stream, given for an array of {name_of(kind)},"
            remedy = _GIVE_STREAM if remedy == CORRECT else remedy
        return ArrayInterfaceError(
            f"{where} is {self.value}: {self.rule}. Remedy: {remedy}.",
            field=self.field,
            value=self.value,
            rule=self.rule,
            remedy=remedy,
        )


def shown(value: object, depth: int = 2) -> str:
    """Return a value for a message: never long, and foreign code is not run for it."""
    kind = type(value)
    if value is MISSING:
        return "missing"
    if kind is int:
        bits = value.bit_length()  # type: ignore[attr-defined]  # the type is tested
        return repr(value) if bits <= 128 else f"an integer of {bits} bits"
    if value is None or kind in (bool, float):
        return repr(value)
    if kind in (str, bytes):
        text = repr(value[: _LONGEST + 1])  # type: ignore[index]  # the type is tested
        return text if len(text) <= _LONGEST + 2 else f"{text[: _LONGEST - 3]}..."
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


# --- Elements, and where they lie -----------------------------------------------------------------

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
# Letters of Python's `struct` and NumPy's `dtype.char` for which both mean the same everywhere. In
# "=l" they differ: 4 bytes for the one, 8 for the other.
_LETTERS = {
    "?": "b1", "b": "i1", "B": "u1", "h": "i2", "H": "u2", "i": "i4", "I": "u4", "q": "i8",
    "Q": "u8", "e": "f2", "f": "f4", "d": "f8", "F": "c8", "D": "c16",
}  # fmt: skip
_NATIVE = "<" if sys.byteorder == "little" else ">"


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


def c_strides(shape: Sequence[int], size: int) -> tuple[int, ...]:
    """Return the strides of contiguous elements of that size, in C order."""
    strides = []
    for count in reversed(shape):
        strides.append(size)
        size *= count
    return tuple(reversed(strides))


def check_extent(
    shape: tuple[int, ...], strides: tuple[int, ...] | None, typestr: str, pointer: int
) -> None:
    """Raise an `EntryError` if elements would lie outside the address space."""
    size = item_size(typestr)
    steps = c_strides(shape, size) if strides is None else strides
    reach = [] if 0 in shape else [(count - 1) * step for count, step in zip(shape, steps)]
    low = pointer + sum(end for end in reach if end < 0)
    high = pointer + sum(end for end in reach if end > 0) + (0 if 0 in shape else size)
    if low < 0 or high > ADDRESS_SPACE:
        field, value = ("shape", shape) if strides is None else ("strides", strides)
        rule = f"elements would lie outside the address space, with data at {pointer:#x}"
        raise EntryError(field, value, rule)


# --- Reading one entry: its value in legal form ---------------------------------------------------
# Besides `EntryError`, the code of a foreign class that runs here may raise anything.


def whole_number(value: Any, field: str) -> int:
    """Read an integer: also a NumPy one, or one of a sub-class; a bool or a float is none."""
    if type(value) is bool or not hasattr(type(value), "__index__"):
        raise EntryError(field, value)
    return int.__index__(index(value))


def _whole_numbers(value: Any, field: str) -> tuple[int, ...]:
    if isinstance(value, (str, bytes, bytearray, dict, set, frozenset)):
        raise EntryError(field, value)
    count = len(value)
    if count > MOST_DIMENSIONS:
        raise EntryError(field, value, f"more than {MOST_DIMENSIONS} dimensions are a mistake")
    numbers = tuple(whole_number(item, field) for item in islice(value, count))  # it may be endless
    if len(numbers) != count:
        raise EntryError(field, value)
    if not all(-ADDRESS_SPACE < number < ADDRESS_SPACE for number in numbers):
        raise EntryError(field, value, "that is more than an address space has")
    return numbers


def read_shape(value: Any) -> tuple[int, ...]:
    """Read ``shape``."""
    shape = _whole_numbers(value, "shape")
    if min(shape, default=0) < 0:
        raise EntryError("shape", value)
    return shape


def read_strides(value: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Read ``strides`` of an array of this shape."""
    strides = _whole_numbers(value, "strides")
    if len(strides) != len(shape):
        raise EntryError("strides", value, f"shape {shown(shape)} has {len(shape)} dimensions")
    return strides


def read_typestr(value: Any) -> str:
    """Read ``typestr``."""
    if not isinstance(value, str):
        raise EntryError("typestr", value)
    text = str.__str__(value)  # of a sub-class as well
    if item_size(text) > 0:
        return text
    order, rest = (text[0], text[1:]) if text[:1] in ("<", ">", "=", "|") else ("=", text)
    rest = _LETTERS.get(rest, rest)
    if order in "=|":  # NumPy reads both so
        order = "|" if item_size(f"|{rest}") > 0 else _NATIVE
    if item_size(order + rest) > 0:
        return order + rest
    raise EntryError("typestr", value)


def read_data(value: Any, shape: tuple[int, ...]) -> tuple[int, bool]:
    """Read ``data`` of an array of this shape: its address and whether it is read-only."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise EntryError("data", value)
    raw, flag = value
    is_empty = 0 in shape
    pointer = 0 if raw is None and is_empty else whole_number(raw, "data")
    is_read_only = bool(flag)
    # "no" and None are neither True nor False.
    if not 0 <= pointer < ADDRESS_SPACE or not flag == is_read_only:
        raise EntryError("data", value)
    if not pointer and not is_empty:
        rule = "an array with elements has an address other than 0"
        raise EntryError(
            "data", value, rule, "look whether its memory was freed, or never allocated"
        )
    return 0 if is_empty else pointer, is_read_only


def read_version(value: Any) -> int:
    """Read ``version``."""
    version = whole_number(value, "version")
    if version > NEWEST:
        remedy = "update cudaguard, or hand the array over without it"
        raise EntryError("version", value, remedy=remedy)
    if version < 0:
        raise EntryError("version", value)
    return version


def read_stream(value: Any) -> int:
    """Read ``stream`` where it is not None; what 0 means depends on the producer."""
    stream = whole_number(value, "stream")
    if not 0 <= stream < ADDRESS_SPACE:
        raise EntryError("stream", value)
    return stream


def read_descr(value: Any) -> list[tuple[Any, ...]]:
    """Read ``descr``."""
    if not isinstance(value, (list, tuple)):
        raise EntryError("descr", value)
    if not all(isinstance(item, (list, tuple)) for item in value):
        raise EntryError("descr", value)
    return [tuple(item) for item in value]


def read_mask(value: Any) -> object:
    """Read ``mask`` where it is not None."""
    if value.__cuda_array_interface__ is None:
        raise EntryError("mask", value)
    return value


def as_dictionary(value: Any) -> dict[Any, Any]:
    """Return an interface as a plain dictionary.

    Raises:
        EntryError: It is no mapping.
    """
    if isinstance(value, dict):
        return dict(dict.items(value))  # what C code sees, whatever the sub-class says
    from collections.abc import Mapping

    if not isinstance(value, Mapping):
        raise EntryError(INTERFACE, value, "it must be a dictionary")
    try:  # entry by entry, as nobody knows how many a foreign class has
        return {name: value[name] for name in SPECIFICATION if name in value}
    except Exception as error:
        raise EntryError(INTERFACE, value, "its entries must be readable") from error
