"""The CUDA array interface, versions 0 to 3: what its entries mean, and the form a consumer reads.

All changes are lossless: the same bytes, the same protection, at least the same synchronization.
What cannot be had so is an `EntryError`.

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
from cudaguard.features.array_interface.consumers import ANY, DENSE, FORWARD
from cudaguard.files import os, program_errors
from cudaguard.model import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import Any

    from cudaguard.features.array_interface.consumers import Consumer

    Interface = dict[str, Any]

INTERFACE = "__cuda_array_interface__"
NEWEST = 3  # version of the specification
LEGACY_STREAM, PER_THREAD_STREAM = 1, 2  # what 1 and 2 mean as a stream; 0 is forbidden
ADDRESS_SPACE = 1 << 64
MISSING = object()

# What the specification says of each entry, as a clause for messages.
SPECIFICATION: dict[str, str] = {
    "shape": "it must be a tuple of integers, none of them negative",
    "typestr": "it must be a string of byte order (<, > or |), kind and size in bytes, as in '<f4'",
    "data": "it must be a tuple of the address (an integer, 0 for an array without elements) and a "
    "bool that says whether it is read-only",
    "version": f"it must be an integer, and {NEWEST} is the newest version there is",
    "strides": "it must be absent, None, or a tuple with the bytes to step in each dimension",
    "descr": "fields of a structured type, as in NumPy's array interface; not looked at",
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
    """One thing that is wrong with an array interface."""

    def __init__(
        self,
        field: str,  # the entry of the dictionary, or `INTERFACE` for all of it
        value: object,  # what stands there
        # what should, as a clause; by default what the specification says of the entry
        rule: str = "",
        remedy: str = CORRECT,  # what to do, as an imperative
        *,
        can_be_corrected: bool = False,  # True if there is one thing only that it can mean
    ) -> None:
        super().__init__(field)
        self.field, self.value = field, short_repr(value)
        self.rule, self.remedy = rule or SPECIFICATION[field], remedy
        self.can_be_corrected = can_be_corrected

    def as_error(self, kind: type, *, is_stream_given: bool = False) -> ArrayInterfaceError:
        """Return the error that a program is given for an array of that class."""
        entry = "" if self.field == INTERFACE else f"[{self.field!r}]"
        where, remedy = f"{INTERFACE}{entry} of {type_name(kind)}", self.remedy
        if is_stream_given and self.field == "stream":
            where = f"The argument stream, given for an array of {type_name(kind)},"
            remedy = _GIVE_STREAM if remedy == CORRECT else remedy
        return ArrayInterfaceError(
            f"{where} is {self.value}: {self.rule}. Remedy: {remedy}.",
            field=self.field,
            value=self.value,
            rule=self.rule,
            remedy=remedy,
        )


def short_repr(value: object, depth: int = 2) -> str:
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
        parts = [short_repr(item, depth - 1) for item in items[:6]] + ["..."] * (len(items) > 6)
        inside = ", ".join(parts) + ("," if kind is tuple and len(items) == 1 else "")
        return f"({inside})" if kind is tuple else f"[{inside}]"
    return f"an object of type {type_name(kind)}"


def type_name(kind: type) -> str:
    """Return the name of a class for a message, with its module."""
    try:
        module, name = kind.__module__, kind.__qualname__
    except program_errors(Exception):  # of a metaclass that is not ours
        return type.__repr__(kind)
    return name if module == "builtins" else f"{module}.{name}"


# --- What producers mean --------------------------------------------------------------------------

# Those that mean the legacy default stream by 0, which the specification forbids.
_ZERO_IS_LEGACY = ("numba", "numba_cuda", "cupy", "torch")
# What numba means by 0 is not established where this variable is set.
_PER_THREAD = "NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM"
# Why an array of a library has no interface, and what to do.
_ABSENT = {
    "torch": "only dense tensors on a CUDA device have it: move it there with .cuda(), or make it "
    "dense with .to_dense()",
    "jax": "only arrays on one CUDA device have it: move it there with jax.device_put",
    "jaxlib": "only arrays on one CUDA device have it: move it there with jax.device_put",
    "nvidia.dali": "only data on the GPU has it: have the pipeline return it there, with .gpu()",
}


def zero_means(kind: type) -> int:
    """Return the stream that a producer of that class means by 0; an `EntryError` if unknown."""
    library, rule = _library_of(kind, _ZERO_IS_LEGACY), ""
    if library.startswith("numba") and os.environ.get(_PER_THREAD, "0").strip() not in ("", "0"):
        rule = f"what numba.cuda means by 0 is not established where {_PER_THREAD} is set"
    elif library:
        return LEGACY_STREAM
    remedy = (
        "name the stream that is meant: normalize(..., stream=1) for the legacy default stream, 2 "
        "for the per-thread one, or a handle"
    )
    raise EntryError("stream", 0, rule, remedy)


def absent(kind: type) -> EntryError:
    """Return what is wrong with an object of that class that has no interface."""
    remedy = _ABSENT.get(_library_of(kind, _ABSENT), "hand over an array on a CUDA device")
    return EntryError(INTERFACE, MISSING, "an array on a CUDA device must have it", remedy)


def _library_of(kind: type, known: Collection[str]) -> str:
    """Return which of the known libraries a class, or a base of it, lies in; "" if none."""
    modules = [f"{base.__module__}." for base in kind.__mro__]
    found = (name for name in known if any(module.startswith(f"{name}.") for module in modules))
    return next(found, "")


# --- Is it in the form that a consumer reads, and how it gets there -------------------------------

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
    """Return the interface of a class in the form that a consumer reads; itself if it is in it.

    The stream is what the caller says of it: None for no pending work, or a number. An `EntryError`
    says why there is no such form, or that it would be a guess.
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


def _is_same(left: Any, right: Any) -> bool:
    """Return True if two values are equal, and of the same types throughout."""
    if left is right or type(left) is not type(right):
        return left is right
    if type(left) in (tuple, list):
        return len(left) == len(right) and all(map(_is_same, left, right))
    return type(left) in (int, str) and left == right


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
        rule = f"{name} refuses read-only arrays"
        raise EntryError("data", cai["data"], rule, "hand over a copy")
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
    """
    legal: Interface = dict(given)
    faults: list[EntryError] = []

    def correct(field: str, value: object, rule: str = "") -> None:
        raw = given.get(field, MISSING)
        if not _is_same(value, raw):
            legal[field] = value
            remedy = f"write {short_repr(value)}, as normalize() does"
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
    if (shape := read("shape", _read_shape)) is not None:
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
_SIZES = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8, 12, 16),
          "c": (8, 16, 24, 32), "m": (8,), "M": (8,)}  # fmt: skip
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
    if (match := _TYPESTR.fullmatch(typestr)) is None:
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
    shape = _whole_numbers(value, "shape")
    if min(shape, default=0) < 0:
        raise EntryError("shape", value)
    return shape


def _read_strides(value: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = _whole_numbers(value, "strides")
    if len(strides) != len(shape):
        raise EntryError("strides", value, f"shape {short_repr(shape)} has {len(shape)} dimensions")
    return strides


def _read_typestr(value: Any) -> str:
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
        remedy = "look whether its memory was freed, or never allocated"
        raise EntryError("data", value, rule, remedy)
    return 0 if is_empty else pointer, is_read_only


def _read_version(value: Any) -> int:
    version = whole_number(value, "version")
    if version > NEWEST:
        remedy = "update cudaguard, or hand the array over without it"
        raise EntryError("version", value, remedy=remedy)
    if version < 0:
        raise EntryError("version", value)
    return version


def _read_stream(value: Any) -> int:
    stream = whole_number(value, "stream")
    if not 0 <= stream < ADDRESS_SPACE:
        raise EntryError("stream", value)
    return stream


def _read_mask(value: Any) -> object:
    if value.__cuda_array_interface__ is None:
        raise EntryError("mask", value)
    return value


def as_dictionary(value: Any) -> dict[Any, Any]:
    """Return an interface as a plain dictionary; an `EntryError` if it is no mapping."""
    if isinstance(value, dict):
        return dict(dict.items(value))  # what C code sees, whatever the sub-class says
    from collections.abc import Mapping

    if not isinstance(value, Mapping):
        raise EntryError(INTERFACE, value, "it must be a dictionary")
    try:  # entry by entry, as nobody knows how many a foreign class has
        return {name: value[name] for name in SPECIFICATION if name in value}
    except program_errors(Exception) as error:
        raise EntryError(INTERFACE, value, "its entries must be readable") from error
