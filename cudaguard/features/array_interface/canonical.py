"""Bring a CUDA array interface into the form that a consumer reads correctly, or say why not.

What follows from the specification, from what is known of the producer and from what the consumer
accepts. All changes are lossless: the same bytes, the same protection, at least the same
synchronization. What cannot be had so is an `EntryError`.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from itertools import islice
from operator import index

from cudaguard.features.array_interface.consumers import ANY, DENSE, FORWARD, zero_means
from cudaguard.features.array_interface.interface import (
    ADDRESS_SPACE,
    AUTO,
    INTERFACE,
    MISSING,
    NEWEST,
    SPECIFICATION,
    EntryError,
    shown,
)
from cudaguard.files import program_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from cudaguard.features.array_interface.consumers import Consumer

    Interface = dict[str, Any]

_REQUIRED = ("shape", "typestr", "data", "version")
# Types that every consumer knows by that name, and their sizes; others take the long way.
_PLAIN = {
    **{f"<{kind}{size}": size for kind in "fiu" for size in (2, 4, 8)},
    **{f"{order}{kind}1": 1 for order in "|<" for kind in "iu"},
}
_MOST_DIMENSIONS = 64  # of an array in NumPy 2; more is a mistake, or meant to take for ever


def is_canonical(cai: Any, consumer: Consumer) -> bool:
    """Return True if an interface can be handed over as it is, False if that takes a closer look.

    This is run for every array that is handed over: interfaces as nearly all are, told by a few
    looks at types. It is one function, and looks at each entry once.
    """
    if type(cai) is not dict or "mask" in cai:
        return False
    try:
        shape, data, typestr, version = cai["shape"], cai["data"], cai["typestr"], cai["version"]
    except KeyError:
        return False
    if (
        type(shape) is not tuple
        or type(data) is not tuple
        or len(data) != 2
        or type(typestr) is not str
        or type(version) is not int
    ):
        return False
    size, (pointer, is_read_only) = _PLAIN.get(typestr), data
    if (
        size is None
        or type(pointer) is not int
        or not 0 < pointer < ADDRESS_SPACE
        or type(is_read_only) is not bool
        or (is_read_only and not consumer.takes_read_only)
        or not consumer.least_version <= version <= NEWEST
        or len(shape) > _MOST_DIMENSIONS
    ):
        return False
    for count in shape:
        if type(count) is not int or not 0 < count < ADDRESS_SPACE:
            return False
    strides, stream = cai.get("strides"), cai.get("stream")
    if strides is not None:
        if type(strides) is not tuple:
            return False
        for step in strides:
            if type(step) is not int:
                return False
        if strides != _c_strides(shape, size):
            return False
    if stream is None:
        return consumer.takes_no_stream or "stream" not in cai
    return (
        type(stream) is int
        and 0 < stream < ADDRESS_SPACE
        and version == NEWEST
        and consumer.heeds_stream
    )


def canonical(cai: Any, consumer: Consumer, kind: type, stream: Any = AUTO) -> Interface:
    """Return the interface in the form that a consumer reads correctly; itself if it is in it.

    Args:
        cai: What the producer exports; it is not changed.
        consumer: Who reads it.
        kind: The class of the producer.
        stream: What the caller says of the stream: None for no pending work; a number; `AUTO`
            to take what the producer says.

    Raises:
        EntryError: There is no such form, or it would be a guess.
    """
    given = as_dictionary(cai)
    if given.get("stream", MISSING) is None and not consumer.takes_no_stream:
        del given["stream"]  # PyCUDA's is always None
        if stream is AUTO and is_canonical(given, consumer):
            return given
    if stream is not AUTO:  # what the caller says counts, and what the array says is not looked at
        given.pop("stream", None)
        if stream is not None:
            given["stream"] = stream
    legal, faults = read_interface(given, kind)
    for fault in faults:
        if not fault.can_be_corrected:
            raise fault
    _check_fit(legal, consumer)
    if legal["version"] < consumer.least_version:
        if consumer.least_version == NEWEST and stream is not None:
            rule = (
                f"{consumer.name} takes version 3 only, and the producer does not say on which "
                "stream its work is"
            )
            remedy = "say it: normalize(..., stream=...), or stream=None if no work is pending"
            raise EntryError("version", legal["version"], rule, remedy)
        legal["version"] = consumer.least_version
    if legal["typestr"][1] == "b" and consumer.boolean != "|b1":
        legal["typestr"] = consumer.boolean
    if legal.get("mask", MISSING) is None:
        del legal["mask"]
    is_as_it_was = type(cai) is dict and legal.keys() == cai.keys() and all(
        _is_same(value, cai[field]) for field, value in legal.items()
    )  # fmt: skip
    return cai if is_as_it_was else legal


def _is_same(one: Any, other: Any) -> bool:
    """Return True if two values are equal, and of the same types throughout."""
    if one is other or type(one) is not type(other):
        return one is other
    if type(one) in (tuple, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return type(one) in (int, str) and one == other


def _check_fit(cai: Interface, consumer: Consumer) -> None:
    """Raise an `EntryError` if a consumer cannot be given an interface that conforms."""
    name, typestr, shape, strides = consumer.name, cai["typestr"], cai["shape"], cai.get("strides")
    size = _item_size(typestr)
    if typestr[0] == ">" and size > 1 and ">" in consumer.misreads:
        rule = f"{name} does not read big-endian data"
        raise EntryError("typestr", typestr, rule, "convert it to the native byte order first")
    if typestr[1] in consumer.misreads:
        rule = f"{name} does not know this type"
        raise EntryError("typestr", typestr, rule, "hand over a view of another type")
    if cai.get("mask") is not None and not consumer.takes_mask:
        rule = f"{name} refuses masks, or takes masked elements for valid"
        raise EntryError("mask", cai["mask"], rule, "fill in the missing values first")
    if cai["data"][1] and not consumer.takes_read_only:
        raise EntryError(
            "data", cai["data"], f"{name} refuses read-only arrays", "hand over a copy"
        )
    if strides is None or 0 in shape or consumer.strides == ANY:
        return
    steps = [
        (step, dense)
        for count, step, dense in zip(shape, strides, _c_strides(shape, size))
        if count > 1
    ]
    if consumer.strides == DENSE and any(step != dense for step, dense in steps):
        rule = f"{name} takes arrays in C order without gaps only"
    elif consumer.strides == FORWARD and any(step < 0 or step % size for step, _ in steps):
        rule = f"{name} takes multiples of the element's {size} bytes only, none negative"
    else:
        return
    raise EntryError("strides", strides, rule, "hand over a contiguous copy")


def read_interface(given: Interface, kind: type) -> tuple[Interface, list[EntryError]]:
    """Return a copy of an interface whose entries conform to the specification, and its faults.

    Entries that cannot be corrected stay as they are.

    Args:
        given: What a producer exports.
        kind: The class of the producer.
    """
    legal: Interface = dict(given)
    faults: list[EntryError] = []

    def correct(field: str, value: object, rule: str = "") -> None:
        raw = given.get(field, MISSING)
        if not _is_same(value, raw):
            legal[field] = value
            remedy = f"write {shown(value)}, as normalize() does"
            faults.append(EntryError(field, raw, rule, remedy, can_be_corrected=True))

    def read(field: str, reader: Callable[[Any], Any], rule: str = "") -> Any:
        raw = given.get(field, MISSING)
        if raw is MISSING or (raw is None and field not in _REQUIRED):
            return None
        try:
            value = reader(raw)
        except EntryError as fault:
            faults.append(fault)
            return None
        except program_errors(Exception) as error:  # of a foreign class
            wrong = EntryError(field, raw)
            wrong.__cause__ = error
            faults.append(wrong)
            return None
        correct(field, value, rule)
        return value

    faults += [EntryError(field, MISSING) for field in _REQUIRED[:3] if field not in given]
    read("typestr", _read_typestr)
    shape = read("shape", _read_shape)
    if shape is not None:
        read("data", lambda raw: _read_data(raw, shape))
        read("strides", lambda raw: _read_strides(raw, shape))
    read("mask", _read_mask)
    stream = read("stream", lambda raw: _read_stream(raw) or zero_means(kind))
    if "version" not in given:  # 2 makes no statement on synchronization
        correct("version", 2 if stream is None else NEWEST)
    elif stream is None:
        read("version", _read_version)
    else:
        rule = "streams begin with version 3"
        read("version", lambda raw: max(_read_version(raw), NEWEST), rule)
    return legal, faults


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
def _item_size(typestr: str) -> int:
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


def _c_strides(shape: Sequence[int], size: int) -> tuple[int, ...]:
    """Return the strides of contiguous elements of that size, in C order."""
    strides = []
    for count in reversed(shape):
        strides.append(size)
        size *= count
    return tuple(reversed(strides))


# --- Reading one entry: its value in legal form ---------------------------------------------------
# A value that says the same in another form is converted (a list for a tuple, a NumPy integer for
# an int, ``f4`` for ``<f4``). Nothing is guessed: what has no legal form is an `EntryError`.
# Besides, the code of a foreign class that runs here may raise anything.


def whole_number(value: Any, field: str) -> int:
    """Read an integer: also a NumPy one, or one of a sub-class; a bool or a float is none."""
    if type(value) is bool or not hasattr(type(value), "__index__"):
        raise EntryError(field, value)
    return int.__index__(index(value))


def _whole_numbers(value: Any, field: str) -> tuple[int, ...]:
    if type(value) is tuple and len(value) <= _MOST_DIMENSIONS:  # as nearly always
        for number in value:
            if type(number) is not int or not -ADDRESS_SPACE < number < ADDRESS_SPACE:
                break
        else:
            return value
    if isinstance(value, (str, bytes, bytearray, dict, set, frozenset)):
        raise EntryError(field, value)
    count = len(value)
    if count > _MOST_DIMENSIONS:
        raise EntryError(field, value, f"more than {_MOST_DIMENSIONS} dimensions are a mistake")
    numbers = tuple(whole_number(item, field) for item in islice(value, count))  # it may be endless
    if len(numbers) != count:
        raise EntryError(field, value)
    if not all(-ADDRESS_SPACE < number < ADDRESS_SPACE for number in numbers):
        raise EntryError(field, value, "that is more than an address space has")
    return numbers


def _read_shape(value: Any) -> tuple[int, ...]:
    """Read ``shape``."""
    shape = _whole_numbers(value, "shape")
    if min(shape, default=0) < 0:
        raise EntryError("shape", value)
    return shape


def _read_strides(value: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Read ``strides`` of an array of this shape."""
    strides = _whole_numbers(value, "strides")
    if len(strides) != len(shape):
        raise EntryError("strides", value, f"shape {shown(shape)} has {len(shape)} dimensions")
    return strides


def _read_typestr(value: Any) -> str:
    """Read ``typestr``."""
    if not isinstance(value, str):
        raise EntryError("typestr", value)
    text = str.__str__(value)  # of a sub-class as well
    if _item_size(text) > 0:
        return text
    order, rest = (text[0], text[1:]) if text[:1] in ("<", ">", "=", "|") else ("=", text)
    rest = _LETTERS.get(rest, rest)
    if order in "=|":  # NumPy reads both so
        order = "|" if _item_size(f"|{rest}") > 0 else _NATIVE
    if _item_size(order + rest) > 0:
        return order + rest
    raise EntryError("typestr", value)


def _read_data(value: Any, shape: tuple[int, ...]) -> tuple[int, bool]:
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


def _read_version(value: Any) -> int:
    """Read ``version``."""
    version = whole_number(value, "version")
    if version > NEWEST:
        remedy = "update cudaguard, or hand the array over without it"
        raise EntryError("version", value, remedy=remedy)
    if version < 0:
        raise EntryError("version", value)
    return version


def _read_stream(value: Any) -> int:
    """Read ``stream`` where it is not None; what 0 means depends on the producer."""
    stream = whole_number(value, "stream")
    if not 0 <= stream < ADDRESS_SPACE:
        raise EntryError("stream", value)
    return stream


def _read_mask(value: Any) -> object:
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
    except program_errors(Exception) as error:
        raise EntryError(INTERFACE, value, "its entries must be readable") from error
