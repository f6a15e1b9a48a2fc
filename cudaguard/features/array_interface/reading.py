"""Read one entry of a CUDA array interface: its value in legal form, or why there is none.

A value that says the same in another form is converted (a list for a tuple, a NumPy integer for an
int, ``f4`` for ``<f4``); a legal one is returned as it is, as the same object. Nothing is guessed:
all functions raise `RefusedError` where there is no such value.
The code of a foreign class that runs here may raise anything; what follows is that its value
cannot be read.
"""

from __future__ import annotations

from operator import index, is_

from cudaguard.features.array_interface.interface import (
    ADDRESS_SPACE,
    INTERFACE,
    NATIVE,
    NEWEST,
    SPECIFICATION,
    item_size,
    refused,
    shown,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST_DIMENSIONS = 64  # of an array in NumPy 2; more is a mistake, or meant to take for ever
# Letters of Python's `struct` and NumPy's `dtype.char` for which both mean the same everywhere. In
# "=l" they differ: 4 bytes for the one, 8 for the other.
_LETTERS = {
    "?": "b1", "b": "i1", "B": "u1", "h": "i2", "H": "u2", "i": "i4", "I": "u4", "q": "i8",
    "Q": "u8", "e": "f2", "f": "f4", "d": "f8", "F": "c8", "D": "c16",
}  # fmt: skip


def whole_number(value: object, field: str) -> int:
    """Read an integer: also a NumPy one, or one of a sub-class; a bool or a float is none."""
    if type(value) is int:
        return value
    try:
        if type(value) is not bool:
            return int.__index__(index(value))  # type: ignore[arg-type]  # raises if it is none
    except Exception as error:
        raise refused(field, value) from error
    raise refused(field, value)


def _whole_numbers(value: Any, field: str) -> tuple[int, ...]:
    if isinstance(value, (str, bytes, bytearray, dict, set, frozenset)):
        raise refused(field, value)
    try:
        count = len(value)
        items = [item for _, item in zip(range(MOST_DIMENSIONS), value)]  # it may have no end
    except Exception as error:
        raise refused(field, value) from error
    if count > MOST_DIMENSIONS:
        raise refused(field, value, f"more than {MOST_DIMENSIONS} dimensions are a mistake")
    numbers = tuple(whole_number(item, field) for item in items[:count])
    if len(numbers) != count:
        raise refused(field, value)
    for number in numbers:
        if not -ADDRESS_SPACE < number < ADDRESS_SPACE:
            raise refused(field, value, "that is more than an address space has")
    is_legal = type(value) is tuple and all(map(is_, numbers, items))
    return value if is_legal else numbers


def read_shape(value: object) -> tuple[int, ...]:
    """Read ``shape``."""
    shape = _whole_numbers(value, "shape")
    for count in shape:
        if count < 0:
            raise refused("shape", value)
    return shape


def read_strides(value: object, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Read ``strides`` of an array of this shape."""
    if value is None:
        return None
    strides = _whole_numbers(value, "strides")
    if len(strides) != len(shape):
        raise refused("strides", value, f"shape {shown(shape)} has {len(shape)} dimensions")
    return strides


def read_typestr(value: object) -> str:
    """Read ``typestr``."""
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
    """Read ``data`` of an array of this shape: its address and whether it is read-only."""
    if not isinstance(value, (tuple, list)):
        raise refused("data", value)
    try:
        raw, flag = value
    except Exception as error:  # not two, or of a sub-class of its own kind
        raise refused("data", value) from error
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
    is_legal = type(value) is tuple and type(raw) is int and type(flag) is bool
    return value if is_legal and value == legal else legal


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
    """Read ``version``."""
    version = whole_number(value, "version")
    if version > NEWEST:
        raise refused(
            "version", value, remedy="update cudaguard, or hand the array over without it"
        )
    if version < 0:
        raise refused("version", value)
    return version


def read_stream(value: object) -> int:
    """Read ``stream`` where it is not None; what 0 means depends on the producer."""
    stream = whole_number(value, "stream")
    if not 0 <= stream < ADDRESS_SPACE:
        raise refused("stream", value)
    return stream


def read_descr(value: object) -> object:
    """Read ``descr``."""
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
    """Read ``mask`` where it is not None."""
    try:
        interface = value.__cuda_array_interface__  # type: ignore[attr-defined]
    except Exception as error:
        raise refused("mask", value) from error
    if interface is None:
        raise refused("mask", value)
    return value


def as_dictionary(value: object) -> dict[Any, Any]:
    """Return the interface itself if it is a plain dictionary, else as one."""
    if type(value) is dict:
        return value
    if isinstance(value, dict):
        return dict(dict.items(value))  # what C code sees, whatever the sub-class says
    from collections.abc import Mapping

    if not isinstance(value, Mapping):
        raise refused(INTERFACE, value, "it must be a dictionary")
    try:  # entry by entry, as nobody knows how many a foreign class has
        return {name: value[name] for name in SPECIFICATION if name in value}
    except Exception as error:
        raise refused(INTERFACE, value, "its entries must be readable") from error
