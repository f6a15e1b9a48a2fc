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
from typing import NamedTuple

from cudaguard.features.array_interface.interface import LEGACY_STREAM, PER_THREAD_STREAM, refused
from cudaguard.system.driver import Driver
from cudaguard.system.machine import meaning
from cudaguard.system.modules import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cudaguard.features.array_interface.consumers import Consumer

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
