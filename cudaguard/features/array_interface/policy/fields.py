"""Read one entry of a CUDA array interface: its value in legal form, or why there is none.

A value that says the same in another form is converted (a list for a tuple, a NumPy integer for an
int, ``f4`` for ``<f4``); a legal one is returned as it is, as the same object. Nothing is guessed.
The code of a foreign class that runs here may raise anything; what follows is that its value
cannot be read.
"""

from __future__ import annotations

from operator import index

from cudaguard.features.array_interface.interface import (
    ADDRESS_SPACE,
    NATIVE,
    NEWEST,
    SPECIFICATION,
    item_size,
)
from cudaguard.features.array_interface.policy.faults import (
    CORRECT,
    INTERFACE,
    Fault,
    RefusedError,
    refused,
    shown,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

MOST_DIMENSIONS = 64  # of an array in NumPy 2; more is a mistake, or meant to take for ever
# Letters of Python's `struct` and NumPy's `dtype.char` for which both mean the same everywhere. In
# "=l" they differ: 4 bytes for the one, 8 for the other.
_LETTERS = {
    "?": "b1", "b": "i1", "B": "u1", "h": "i2", "H": "u2", "i": "i4", "I": "u4", "q": "i8",
    "Q": "u8", "e": "f2", "f": "f4", "d": "f8", "F": "c8", "D": "c16",
}  # fmt: skip


def whole_number(value: object, field: str) -> int:
    """Read an integer: also a NumPy one, or one of a sub-class; a bool or a float is none.

    Raises:
        RefusedError: It is none.
    """
    if type(value) is int:
        return value
    try:
        if type(value) is not bool:
            return int.__index__(index(value))  # type: ignore[arg-type]  # raises if it is none
    except Exception as error:
        raise refused(field, value) from error
    raise refused(field, value)


def _whole_numbers(value: Any, field: str) -> tuple[int, ...]:
    if type(value) is tuple:
        for item in value:
            if type(item) is not int:
                break
        else:
            _check_sizes(value, value, field)
            return value
    if isinstance(value, (str, bytes, bytearray, dict, set, frozenset)):
        raise refused(field, value)
    try:
        count = len(value)
        if count > MOST_DIMENSIONS:
            raise refused(field, value, f"more than {MOST_DIMENSIONS} dimensions are a mistake")
        items = [item for _, item in zip(range(count), value)]  # it may have no end
    except RefusedError:
        raise
    except Exception as error:
        raise refused(field, value) from error
    numbers = tuple(whole_number(item, field) for item in items)
    if len(numbers) != count:
        raise refused(field, value)
    _check_sizes(numbers, value, field)
    return numbers


def _check_sizes(numbers: tuple[int, ...], value: object, field: str) -> None:
    if len(numbers) > MOST_DIMENSIONS:
        raise refused(field, value, f"more than {MOST_DIMENSIONS} dimensions are a mistake")
    for number in numbers:
        if not -ADDRESS_SPACE < number < ADDRESS_SPACE:
            raise refused(field, value, "that is more than an address space has")


def read_shape(value: object) -> tuple[int, ...]:
    """Read ``shape``.

    Raises:
        RefusedError: It is no sequence of integers, or one is negative.
    """
    shape = _whole_numbers(value, "shape")
    for count in shape:
        if count < 0:
            raise refused("shape", value)
    return shape


def read_strides(value: object, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Read ``strides`` of an array of this shape.

    Raises:
        RefusedError: It is no sequence of integers, or not of that length.
    """
    if value is None:
        return None
    strides = _whole_numbers(value, "strides")
    if len(strides) != len(shape):
        raise refused("strides", value, f"shape {shown(shape)} has {len(shape)} dimensions")
    return strides


def read_typestr(value: object) -> str:
    """Read ``typestr``.

    Raises:
        RefusedError: It names no type, or one that readers take differently.
    """
    text = value
    try:
        if isinstance(text, (bytes, bytearray)):
            text = bytes(text).decode("ascii")
        elif isinstance(text, str):
            text = str.__str__(text)  # of a sub-class as well
        else:
            raise refused("typestr", value)
    except UnicodeError as error:
        raise refused("typestr", value) from error
    if item_size(text) > 0:
        return text
    order, rest = (text[0], text[1:]) if text[:1] in ("<", ">", "=", "|") else ("=", text)
    rest = _LETTERS.get(rest, rest)
    if order == "|" and item_size(f"{NATIVE}{rest}") > 0:
        order = "="  # NumPy reads it so
    if order == "=":
        order = "|" if item_size(f"|{rest}") > 0 else NATIVE
    if item_size(order + rest) > 0:
        return order + rest
    raise refused("typestr", value)


def read_data(value: object, shape: tuple[int, ...]) -> tuple[int, bool]:
    """Read ``data`` of an array of this shape.

    Raises:
        RefusedError: It is no pair of an address and a truth value, or there are elements and
            no address.
    """
    if type(value) is tuple and len(value) == 2:
        pointer, is_read_only = value
        if type(pointer) is int and type(is_read_only) is bool and 0 < pointer < ADDRESS_SPACE:
            return value if 0 not in shape else (0, is_read_only)
    raw, flag = _pair(value)
    is_empty = 0 in shape
    pointer = 0 if raw is None and is_empty else whole_number(raw, "data")
    if not 0 <= pointer < ADDRESS_SPACE:
        raise refused("data", value)
    if not pointer and not is_empty:
        raise refused(
            "data", value, "an array with elements has an address other than 0",
            "look whether its memory was freed, or never allocated",
        )  # fmt: skip
    legal = (0 if is_empty else pointer, _truth(flag, value))
    return value if type(value) is tuple and _same(value, legal) else legal


def _pair(value: object) -> tuple[object, object]:
    if isinstance(value, (tuple, list)):
        try:
            raw, flag = value
        except Exception as error:  # not two, or of a sub-class of its own kind
            raise refused("data", value) from error
        return raw, flag
    raise refused("data", value)


def _same(value: tuple[Any, ...], legal: tuple[int, bool]) -> bool:
    return type(value[0]) is int and type(value[1]) is bool and value == legal


def _truth(flag: object, value: object) -> bool:
    if type(flag) is bool:
        return flag
    try:
        truth = bool(flag)
        is_one = bool(flag == truth)  # "no" and None are neither True nor False
    except Exception as error:
        raise refused("data", value) from error
    if not is_one:
        raise refused("data", value)
    return truth


def read_version(value: object) -> int:
    """Read ``version``.

    Raises:
        RefusedError: It is no integer, or one that this package does not know.
    """
    version = whole_number(value, "version")
    if version > NEWEST:
        raise refused(
            "version", value, remedy="update cudaguard, or hand the array over without it"
        )
    if version < 0:
        raise refused("version", value)
    return version


def read_stream(value: object) -> int:
    """Read ``stream`` where it is not None; 0 is left to whoever knows the producer.

    Raises:
        RefusedError: It is no integer, or cannot be a handle.
    """
    stream = whole_number(value, "stream")
    if not 0 <= stream < ADDRESS_SPACE:
        raise refused("stream", value)
    return stream


def read_descr(value: object) -> object:
    """Read ``descr``.

    Raises:
        RefusedError: It is no list of tuples.
    """
    if not isinstance(value, (list, tuple)):
        raise refused("descr", value)
    if type(value) is list and all(type(item) is tuple for item in value):
        return value
    try:
        if all(isinstance(item, (list, tuple)) for item in value):
            return [tuple(item) for item in value]
    except Exception as error:
        raise refused("descr", value) from error
    raise refused("descr", value)


def read_mask(value: object) -> object:
    """Read ``mask`` where it is not None.

    Raises:
        RefusedError: It is no array.
    """
    try:
        interface = value.__cuda_array_interface__  # type: ignore[attr-defined]
    except Exception as error:
        raise refused("mask", value) from error
    if interface is None:
        raise refused("mask", value)
    return value


def as_dictionary(value: object) -> dict[Any, Any]:
    """Return the interface itself if it is a plain dictionary, else as one.

    Raises:
        RefusedError: It is no mapping.
    """
    if type(value) is dict:
        return value
    if isinstance(value, dict):
        return dict(dict.items(value))  # what C code sees, whatever the sub-class says
    from collections.abc import Mapping as AnyMapping

    if not isinstance(value, AnyMapping):
        rule = "it must be a dictionary"
        raise RefusedError(Fault(INTERFACE, shown(value), rule, CORRECT))
    mapping: Mapping[Any, Any] = value
    try:  # entry by entry, as nobody knows how many a foreign class has
        return {name: mapping[name] for name in SPECIFICATION if name in mapping}
    except Exception as error:
        rule = "its entries must be readable"
        raise RefusedError(Fault(INTERFACE, shown(value), rule, CORRECT)) from error
