"""Bring a CUDA array interface into the form that a consumer reads correctly, or say why not.

What follows from the specification, from what is known of the producer and from what the consumer
accepts. All changes are lossless: the same bytes, the same protection, at least the same
synchronization. What cannot be had so is an `EntryError`.
"""

from __future__ import annotations

from cudaguard.features.array_interface.consumers import (
    ANY,
    DENSE,
    FORWARD,
    zero_means,
)
from cudaguard.features.array_interface.interface import (
    ADDRESS_SPACE,
    AUTO,
    MISSING,
    MOST_DIMENSIONS,
    NEWEST,
    EntryError,
    as_dictionary,
    c_strides,
    check_extent,
    item_size,
    read_data,
    read_descr,
    read_mask,
    read_shape,
    read_stream,
    read_strides,
    read_typestr,
    read_version,
    shown,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cudaguard.features.array_interface.consumers import Consumer

    Interface = dict[str, Any]

_REQUIRED = ("shape", "typestr", "data", "version")
# Types that every consumer knows by that name, and their sizes; others take the long way.
_PLAIN = {
    **{f"<{kind}{size}": size for kind in "fiu" for size in (2, 4, 8)},
    **{f"{order}{kind}1": 1 for order in "|<" for kind in "iu"},
}
_USUAL = 1 << 47  # what addresses and sizes stay below; others are looked at closely


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
    bytes_, (pointer, is_read_only) = _PLAIN.get(typestr), data
    if (
        bytes_ is None
        or type(pointer) is not int
        or not 0 < pointer < _USUAL
        or type(is_read_only) is not bool
        or (is_read_only and not consumer.takes_read_only)
        or not consumer.least_version <= version <= NEWEST
        or len(shape) > MOST_DIMENSIONS
    ):
        return False
    size = bytes_
    for count in shape:
        if type(count) is not int or count <= 0:
            return False
        bytes_ *= count
    strides, stream = cai.get("strides"), cai.get("stream")
    if strides is not None:
        if type(strides) is not tuple:
            return False
        for step in strides:
            if type(step) is not int:
                return False
        if strides != c_strides(shape, size):
            return False
    if "descr" in cai:
        if type(cai["descr"]) is not list:
            return False
        for item in cai["descr"]:
            if type(item) is not tuple:
                return False
    if stream is None:
        return bytes_ <= _USUAL and (consumer.takes_no_stream or "stream" not in cai)
    return (
        bytes_ <= _USUAL
        and type(stream) is int
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
    if type(one) is not type(other):
        return False
    if type(one) in (tuple, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return one is other or (type(one) in (int, str) and one == other)


def _check_fit(cai: Interface, consumer: Consumer) -> None:
    """Raise an `EntryError` if a consumer cannot be given an interface that conforms."""
    name, typestr, shape, strides = consumer.name, cai["typestr"], cai["shape"], cai.get("strides")
    size = item_size(typestr)
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
        for count, step, dense in zip(shape, strides, c_strides(shape, size))
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
        except Exception as error:  # of a foreign class
            wrong = EntryError(field, raw)
            wrong.__cause__ = error
            faults.append(wrong)
            return None
        correct(field, value, rule)
        return value

    faults += [EntryError(field, MISSING) for field in _REQUIRED[:3] if field not in given]
    typestr = read("typestr", read_typestr)
    shape = read("shape", read_shape)
    data = strides = None
    if shape is not None:
        data = read("data", lambda raw: read_data(raw, shape))
        strides = read("strides", lambda raw: read_strides(raw, shape))
    read("descr", read_descr)
    read("mask", read_mask)
    stream = read("stream", lambda raw: read_stream(raw) or zero_means(kind))
    if "version" not in given:  # 2 makes no statement on synchronization
        correct("version", 2 if stream is None else NEWEST)
    elif stream is None:
        read("version", read_version)
    else:
        rule = "streams begin with version 3"
        read("version", lambda raw: max(read_version(raw), NEWEST), rule)
    if data is not None and typestr is not None:
        try:
            check_extent(shape, strides, typestr, data[0])
        except EntryError as fault:
            faults.append(fault)
    return legal, faults
