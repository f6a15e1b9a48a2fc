"""Bring a CUDA array interface into the form that a consumer reads rightly, or say why not.

What follows from the specification, from what is known of the producer and from what the consumer
accepts. All changes are lossless: the same bytes, the same protection, at least the same
synchronization. What cannot be had so is refused.
"""

from __future__ import annotations

from cudaguard.features.array_interface.consumers import (
    ANY,
    DENSE,
    FORWARD,
    HEEDS,
    REFUSES,
    producer_of,
    zero_means,
)
from cudaguard.features.array_interface.interface import (
    ADDRESS_SPACE,
    AUTO,
    CORRECT,
    INTERFACE,
    NEWEST,
    SPECIFICATION,
    Fault,
    RefusedError,
    extent,
    in_c_order,
    item_size,
    refused,
    shown,
)
from cudaguard.features.array_interface.waiting import (
    MOST_DIMENSIONS,
    as_dictionary,
    read_data,
    read_descr,
    read_mask,
    read_shape,
    read_stream,
    read_strides,
    read_typestr,
    read_version,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cudaguard.features.array_interface.consumers import Consumer

    Interface = dict[str, Any]

_MISSING = object()
_REQUIRED = ("shape", "typestr", "data", "version")
# Types that every consumer knows by that name, and their sizes; others take the long way.
_PLAIN = {
    **{f"<{kind}{size}": size for kind in "fiu" for size in (2, 4, 8)},
    **{f"{order}{kind}1": 1 for order in "|<" for kind in "iu"},
}
_USUAL = 1 << 47  # what addresses and sizes stay below; others are looked at closely


# --- the fast path: interfaces as nearly all are, told by a few looks at types ------------------


def in_good_form(cai: Any, consumer: Consumer) -> dict[str, Any] | None:
    """Return the interface as it can be handed over, with nothing else to do or to say.

    That is the interface itself, or a copy without a stream None for a consumer that is to be
    spared that. None where it cannot be told so quickly. This is run for every array that is
    handed over: it is one function, and looks at each entry once.
    """
    if type(cai) is not dict or "mask" in cai:
        return None
    try:
        shape, data, typestr, version = cai["shape"], cai["data"], cai["typestr"], cai["version"]
    except KeyError:
        return None
    if (
        type(shape) is not tuple
        or type(data) is not tuple
        or len(data) != 2
        or type(typestr) is not str
        or type(version) is not int
    ):
        return None
    size, (pointer, is_read_only) = _PLAIN.get(typestr), data
    if (
        size is None
        or type(pointer) is not int
        or type(is_read_only) is not bool
        or not 0 < pointer < _USUAL
        or (is_read_only and consumer.read_only != HEEDS)
        or not consumer.least_version <= version <= NEWEST
        or not consumer.least_dimensions <= len(shape) <= MOST_DIMENSIONS
    ):
        return None
    bytes_ = size
    for count in shape:
        if type(count) is not int or count <= 0:
            return None
        bytes_ *= count
    if bytes_ > _USUAL:
        return None
    strides, stream = cai.get("strides"), cai.get("stream")
    if strides is not None and not _step_forward(shape, strides, size, consumer.strides == ANY):
        return None
    if stream is not None:
        if type(stream) is not int or not 0 < stream < ADDRESS_SPACE or version != NEWEST:
            return None
        if consumer.stream != HEEDS:
            return None
    if "descr" in cai and not _is_plain(cai["descr"]):
        return None
    if stream is None and not consumer.takes_no_stream and "stream" in cai:
        spared: dict[str, Any] = cai.copy()
        del spared["stream"]
        return spared
    return cai


def _is_plain(descr: Any) -> bool:
    return type(descr) is list and all(type(item) is tuple for item in descr)


def _step_forward(shape: tuple[int, ...], strides: Any, size: int, may_have_gaps: bool) -> bool:
    """Return True if strides lead forward, within reach, and without gaps where that is asked."""
    if type(strides) is not tuple or len(strides) != len(shape):
        return False
    end, dense = 0, size
    for at in range(len(shape) - 1, -1, -1):
        count, step = shape[at], strides[at]
        if type(step) is not int or step < 0:
            return False
        if not may_have_gaps and count != 1 and step != dense:
            return False
        end += (count - 1) * step
        dense *= count
    return end < _USUAL


# --- all others -------------------------------------------------------------------------------


def canonical(cai: Any, consumer: Consumer, kind: type, stream: Any = AUTO) -> Interface:
    """Return the interface in the form that a consumer reads rightly; itself if it is in it.

    Args:
        cai: What the producer exports; it is not changed.
        consumer: Who reads it.
        kind: The class of the producer.
        stream: What the caller says of the stream: None for no pending work; a number; `AUTO`
            to take what the producer says.

    Raises:
        RefusedError: There is no such form, or it would be a guess.
    """
    given = as_dictionary(cai)
    # What the caller says counts, and what the array says of it is not looked at then.
    heard = given if stream is AUTO else {k: v for k, v in given.items() if k != "stream"}
    legal = _legal(heard)
    _check_fit(legal, consumer)
    legal["version"], said = _agree(legal, consumer, kind, stream)
    if consumer.boolean != "|b1" and legal["typestr"][1] == "b":
        legal["typestr"] = consumer.boolean
    if said is not None:
        legal["stream"] = said
    elif legal.get("stream", AUTO) is not None or not consumer.takes_no_stream:
        legal.pop("stream", None)
    if legal.get("mask", AUTO) is None:
        del legal["mask"]
    return given if given is cai and _is_same(legal, given) else legal


def _is_same(legal: Interface, given: Interface) -> bool:
    if len(legal) != len(given):
        return False
    for field, value in legal.items():
        raw = given.get(field, _MISSING)
        if raw is not value and not (type(raw) is type(value) in (str, int) and raw == value):
            return False
    return True


def _check_fit(cai: dict[str, Any], consumer: Consumer) -> None:
    """Look for what the consumer cannot be given.

    Args:
        cai: An interface that conforms to the specification.
        consumer: Who is to read it.

    Raises:
        RefusedError: There is something.
    """
    name, typestr, shape = consumer.name, cai["typestr"], cai["shape"]
    size = item_size(typestr)
    if typestr[0] == ">" and size > 1 and ">" in consumer.misreads:
        raise refused(
            "typestr", typestr, f"{name} does not read big-endian data",
            "convert it to the native byte order first",
        )  # fmt: skip
    if typestr[1] in consumer.misreads:
        rule = f"{name} does not know this type"
        raise refused("typestr", typestr, rule, "hand over a view of another type")
    if cai.get("mask") is not None and consumer.mask != HEEDS:
        how = "refuses masks" if consumer.mask == REFUSES else "takes masked elements for valid"
        raise refused("mask", cai["mask"], f"{name} {how}", "fill in the missing values first")
    if cai["data"][1] and consumer.read_only == REFUSES:
        raise refused(
            "data", cai["data"], f"{name} refuses read-only arrays", "hand over a copy",
            adjective="read-only",
        )  # fmt: skip
    if len(shape) < consumer.least_dimensions:
        least = consumer.least_dimensions
        rule = f"{name} takes arrays of at least {least} dimension{'s' * (least > 1)}"
        raise refused("shape", shape, rule, "reshape it")
    _check_strides(shape, cai.get("strides"), size, consumer)


def _check_strides(
    shape: tuple[int, ...], strides: tuple[int, ...] | None, size: int, consumer: Consumer
) -> None:
    if strides is None or 0 in shape:
        return
    if consumer.strides == DENSE and not in_c_order(shape, strides, size):
        rule = f"{consumer.name} takes arrays in C order without gaps only"
    elif consumer.strides == FORWARD and any(
        count > 1 and (step < 0 or step % size) for count, step in zip(shape, strides)
    ):
        rule = f"{consumer.name} takes multiples of the element's {size} bytes only, none negative"
    else:
        return
    raise refused("strides", strides, rule, "hand over a contiguous copy")


def check(cai: Any, kind: type) -> tuple[Fault, ...]:
    """Return all that keeps an interface from conforming to the specification.

    Args:
        cai: What the producer exports; it is not changed.
        kind: The class of the producer.
    """
    faults: list[Fault] = []
    try:
        given = as_dictionary(cai)
        legal = _legal(given, faults)
    except RefusedError as error:
        return (error.fault,)
    stream = legal.get("stream")
    if type(stream) is int and stream == 0:
        try:
            faults.append(_mended("stream", 0, zero_means(kind)))
        except RefusedError as error:
            faults.append(error.fault)
    return tuple(faults)


def _legal(given: Interface, faults: list[Fault] | None = None) -> Interface:
    """Return a copy whose entries conform to the specification, but for a stream 0.

    Args:
        given: The interface.
        faults: Takes what is wrong; entries that cannot be mended stay as they are then.

    Raises:
        RefusedError: Something is wrong that cannot be mended, and nobody takes it.
    """
    legal = dict(given)
    shape: Any = None

    def read(field: str, reader: Callable[..., Any], *more: object) -> Any:
        raw = given.get(field, _MISSING)
        if raw is _MISSING:
            if field in _REQUIRED:
                fault = Fault(field, "missing", SPECIFICATION[field], CORRECT)
                if faults is None:
                    raise RefusedError(fault)
                faults.append(fault)
            return None
        if raw is None and field not in _REQUIRED:
            return None
        try:
            legal[field] = value = reader(raw, *more)
        except RefusedError as error:
            if faults is None:
                raise
            faults.append(error.fault)
            return None
        if value is not raw and faults is not None:
            faults.append(_mended(field, raw, value))
        return value

    shape = read("shape", read_shape)
    typestr = read("typestr", read_typestr)
    data = read("data", read_data, shape) if shape is not None else None
    strides = read("strides", read_strides, shape) if shape is not None else None
    read("descr", read_descr)
    read("mask", read_mask)
    stream = read("stream", read_stream)
    if "version" in given:
        version = read("version", read_version)
        if version is not None and version < 3 and stream is not None:
            legal["version"] = 3  # which is where streams are heeded
            if faults is not None:
                faults.append(_mended("version", version, 3, "streams begin with version 3"))
    else:
        # No statement on synchronization, as in version 2, unless there is one.
        legal["version"] = 2 if stream is None else 3
        if faults is not None:
            faults.append(_mended("version", _MISSING, legal["version"]))
    if data is not None and typestr is not None:
        try:
            _check_extent(shape, typestr, data[0], strides)
        except RefusedError as error:
            if faults is None:
                raise
            faults.append(error.fault)
    return legal


def _mended(field: str, raw: object, value: object, rule: str = "") -> Fault:
    text = "missing" if raw is _MISSING else shown(raw)
    remedy = f"write {shown(value)}, as normalize() does"
    return Fault(field, text, rule or SPECIFICATION[field], remedy, can_be_mended=True)


def _check_extent(
    shape: tuple[int, ...], typestr: str, pointer: int, strides: tuple[int, ...] | None
) -> None:
    low, high = extent(shape, strides, item_size(typestr))
    if pointer + low < 0 or pointer + high > ADDRESS_SPACE:
        field, value = ("shape", shape) if strides is None else ("strides", strides)
        rule = f"elements would lie outside the address space, with data at {pointer:#x}"
        raise refused(field, value, rule)


def _agree(cai: Interface, consumer: Consumer, kind: type, stream: Any) -> tuple[int, int | None]:
    """Return the version and the stream to write, None for none."""
    said = cai.get("stream") if stream is AUTO else stream
    if said == 0:
        said = zero_means(kind)
    version: int = cai["version"]
    if said is not None:
        return max(version, 3), said
    if version >= consumer.least_version:
        return version, None
    if consumer.least_version < 3 or stream is None:
        return consumer.least_version, None
    producer = producer_of(kind)
    hint = producer.stream if producer is not None else ""
    raise refused(
        "version",
        version,
        f"{consumer.name} takes version 3 only, and the producer does not say on which stream its "
        "work is",
        f"say it: normalize(..., stream={hint or '...'}), or stream=None if no work is pending",
    )


def absent(kind: type) -> Fault:
    """Return what is wrong with an object of that class that has no interface."""
    producer = producer_of(kind)
    known = producer.absent if producer is not None else ""
    return Fault(
        INTERFACE,
        "missing",
        "an array on a CUDA device must have it",
        known or "hand over an array on a CUDA device",
    )
