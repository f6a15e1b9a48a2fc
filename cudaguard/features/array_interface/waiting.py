"""Have a consumer that does not heed streams read after the producer's work all the same.

The driver is called only if the program has loaded and initialized it: otherwise nothing can be
pending. In a forked process it is not called where it was known before the fork that the parent
uses CUDA, as CUDA fails there. The handle of a stream that was destroyed is undefined behavior to
the driver: nobody can check for that.

A stream is one of a context. The handles of the default streams (1 and 2) mean those of whatever
context is current in the calling thread. Memory of a pool, and memory that was mapped (torch's
expandable segments), belongs to a device and to no context.

Source: CUDA driver API reference, "Stream Management", "Event Management", "Context Management",
"Primary Context Management", "Unified Addressing"; CUDA programming guide, "Stream Capture",
"Stream Ordered Memory Allocator".
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import ExitStack, contextmanager
from operator import index, is_
from typing import NamedTuple

from cudaguard.features.array_interface.interface import (
    ADDRESS_SPACE,
    INTERFACE,
    LEGACY_STREAM,
    NATIVE,
    NEWEST,
    PER_THREAD_STREAM,
    SPECIFICATION,
    item_size,
    refused,
    shown,
)
from cudaguard.system.driver import Driver
from cudaguard.system.machine import meaning
from cudaguard.system.modules import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from cudaguard.features.array_interface.consumers import Consumer

# --- Read one entry of a CUDA array interface: its value in legal form, or why there is none ------
# A value that says the same in another form is converted (a list for a tuple, a NumPy integer for
# an int, ``f4`` for ``<f4``); a legal one is returned as it is, as the same object. Nothing is
# guessed: all functions raise `RefusedError` where there is no such value. The code of a foreign
# class that runs here may raise anything; what follows is that its value cannot be read.

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


_DEFAULTS = (LEGACY_STREAM, PER_THREAD_STREAM)
_INVALID_HANDLE, _LACKING = 400, 500  # CUresult; the latter: this driver has no such function
_WITHOUT_TIMES = 2  # CU_EVENT_DISABLE_TIMING
_CONTEXT, _ORDINAL = 1, 9  # CU_POINTER_ATTRIBUTE_...
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_NOBODY, _HOST, _READER = "", "host", "reader"  # what was made to wait

driver = Driver()


class _Place(NamedTuple):
    """A stream, and the context that its handle is valid in; 0 for the one that is current."""

    context: int
    stream: int


def order(stream: int, consumer: Consumer, pointer: int) -> str:
    """Make the consumer's reading wait for the work that is pending on the producer's stream.

    Where the stream that it will read on is known, that one waits, and the host does not.

    Args:
        stream: The producer's.
        consumer: Does not heed it.
        pointer: Address of the data.

    Returns:
        What was done, as a clause; empty if nothing had to be.

    Raises:
        RefusedError: The driver cannot do it, as while a graph is captured.
    """
    if not driver.state().is_initialized:
        return ""
    reader = _reader(consumer, pointer)
    if reader == stream and reader not in _DEFAULTS:
        return ""
    with _relaxed(), ExitStack() as retained:
        producers = _of_producer(stream, pointer, retained)
        if not producers:
            raise refused(
                "stream", stream, "it is the default stream of a context, and none is current or "
                "active on the device of the data",
                "make that context current in this thread, or synchronize and hand the array over "
                "with stream=None",
            )  # fmt: skip
        readers = () if reader is None else _of_reader(reader, pointer, retained)
        if not readers:  # a default stream of a context that is yet to come waits for nobody
            for place in producers:
                _synchronize(place)
            return _said(_HOST, consumer)
        waits = [_wait(readers, place) for place in producers]
    return _said(next(who for who in (_HOST, _READER, _NOBODY) if who in waits), consumer)


def _said(waits: str, consumer: Consumer) -> str:
    if waits == _HOST:
        return "the host has waited for it"
    return f"the stream that {consumer.name} reads on was made to wait for it" if waits else ""


def _reader(consumer: Consumer, pointer: int) -> int | None:
    """Return the stream that the consumer will read on, None if that is not known."""
    if consumer.current_stream != "torch.cuda.current_stream":
        return None
    cuda = peek(sys.modules.get("torch"), "cuda")
    if cuda is None:
        return None
    if not cuda.is_initialized():  # it will begin on its default stream; asking would begin now
        return LEGACY_STREAM
    stream = cuda.current_stream(_device_of(pointer))
    return int(stream.cuda_stream) or LEGACY_STREAM


def _synchronize(producer: _Place) -> None:
    with _current(producer.context):
        _refuse_capture(_is_captured(producer, producer), False, producer)
        _do("cuStreamSynchronize", producer, ctypes.c_void_p(producer.stream))


def _wait(readers: Sequence[_Place], producer: _Place) -> str:
    """Make readers wait for a producer by an event, which is bound to the producer's context."""
    readers = [reader for reader in readers if reader != producer]
    if not readers:
        return _NOBODY
    captured = []
    for reader in readers:
        with _current(reader.context):
            captured.append(_is_captured(reader, producer))
    event = ctypes.c_void_p()
    with _current(producer.context):
        for is_reader_captured in captured:
            _refuse_capture(_is_captured(producer, producer), is_reader_captured, producer)
        _do("cuEventCreate", producer, ctypes.byref(event), _WITHOUT_TIMES)
    try:
        with _current(producer.context):
            status = driver.call("cuEventRecord", event, ctypes.c_void_p(producer.stream))
        if status == _INVALID_HANDLE:  # a stream that takes no events of its context
            _synchronize(producer)
            return _HOST
        _check("cuEventRecord", status, producer)
        for reader in readers:
            with _current(reader.context):
                _do("cuStreamWaitEvent", producer, ctypes.c_void_p(reader.stream), event, 0)
    finally:
        driver.call("cuEventDestroy_v2", event)  # what waits for it goes on waiting
    return _READER


def _refuse_capture(is_captured: bool, is_with_reader: bool, producer: _Place) -> None:
    """Keep captures of graphs whole: waiting from outside would break one off."""
    if is_captured != is_with_reader:
        raise refused(
            "stream", producer.stream,
            "a graph is being captured, which no stream outside it can wait for",
            "hand the array over before the capture begins, or on the captured stream",
        )  # fmt: skip


def _is_captured(place: _Place, producer: _Place) -> bool:
    """Return whether a stream of the current context is captured."""
    status, handle = ctypes.c_int(), ctypes.c_void_p(place.stream)
    answer = driver.call("cuStreamIsCapturing", handle, ctypes.byref(status))
    if answer == _LACKING:  # older than CUDA 10
        return False
    _check("cuStreamIsCapturing", answer, producer)
    return status.value != 0


def _do(call: str, producer: _Place, *arguments: object) -> None:
    _check(call, driver.call(call, *arguments), producer)


def _check(call: str, status: int, producer: _Place) -> None:
    if status:
        raise refused(
            "stream", producer.stream, f"{call} answers {status}: {meaning(status)}",
            "synchronize that stream, then hand the array over with stream=None",
        )  # fmt: skip


# --- where streams are ------------------------------------------------------------------------


def _of_producer(stream: int, pointer: int, retained: ExitStack) -> tuple[_Place, ...]:
    """Return where the producer's stream is; nothing if that cannot be known.

    Several, where it may be the default stream of one context or of another.
    """
    if stream in _DEFAULTS:
        context, address = ctypes.c_void_p(), ctypes.c_uint64(pointer)
        failed = driver.call("cuPointerGetAttribute", ctypes.byref(context), _CONTEXT, address)
        if context.value and not failed:
            return (_Place(context.value, stream),)
    return _of_reader(stream, pointer, retained)


def _of_reader(stream: int, pointer: int, retained: ExitStack) -> tuple[_Place, ...]:
    """Return where a stream is that reads; nothing if it is not there yet.

    The default streams are those of the primary context of the data's device, which torch and
    the CUDA runtime use, and of a context of somebody's own that is current on that device.
    """
    if stream not in _DEFAULTS:
        return (_Place(_context_of(stream), stream),)
    device, current = _device_of(pointer), driver.current_context()
    if device is None:  # memory that no driver knows
        return (_Place(current, stream),) if current else ()
    now = ctypes.c_int()
    is_there = current and not driver.call("cuCtxGetDevice", ctypes.byref(now))
    found = {_primary(device, retained), current if is_there and now.value == device else 0}
    return tuple(_Place(context, stream) for context in sorted(found) if context)


def _primary(device: int, retained: ExitStack) -> int:
    """Return the primary context of a device, retained for a while; 0 if it is not active."""
    flags, active, context = ctypes.c_uint(), ctypes.c_int(), ctypes.c_void_p()
    state = ctypes.byref(flags), ctypes.byref(active)
    if driver.call("cuDevicePrimaryCtxGetState", device, *state) or not active.value:
        return 0
    if driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device):
        return 0
    retained.callback(driver.call, "cuDevicePrimaryCtxRelease_v2", device)
    return context.value or 0


def _context_of(stream: int) -> int:
    """Return the context of a stream that somebody has made, 0 if the driver cannot tell.

    Of a stream of a green context it is the primary one: the green context may be current to
    another thread, and can be current to one only.
    """
    context, green = ctypes.c_void_p(), ctypes.c_void_p()
    handle, answer = ctypes.c_void_p(stream), ctypes.byref(context)
    if driver.call("cuStreamGetCtx_v2", handle, answer, ctypes.byref(green)) and driver.call(
        "cuStreamGetCtx", handle, answer
    ):
        return 0
    return context.value or 0


def _device_of(pointer: int) -> int | None:
    """Return the ordinal of the device that has an address; None if the driver knows of none."""
    device, address = ctypes.c_int(), ctypes.c_uint64(pointer)
    status = driver.call("cuPointerGetAttribute", ctypes.byref(device), _ORDINAL, address)
    return None if status else device.value


@contextmanager
def _current(context: int) -> Iterator[None]:
    """Make a context current in this thread for a while; 0 leaves it as it is."""
    is_pushed = context and driver.call("cuCtxPushCurrent_v2", ctypes.c_void_p(context)) == 0
    try:
        yield
    finally:
        if is_pushed:
            driver.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


@contextmanager
def _relaxed() -> Iterator[None]:
    """Let this thread make calls that would break off a capture of another thread otherwise.

    What is called here is no part of any graph: it need not be observed by captures.
    """
    mode = ctypes.c_int(_RELAXED)
    exchange = "cuThreadExchangeStreamCaptureMode"
    is_changed = driver.call(exchange, ctypes.byref(mode)) == 0
    try:
        yield
    finally:
        if is_changed:
            driver.call(exchange, ctypes.byref(mode))
