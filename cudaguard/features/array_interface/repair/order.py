"""Have a consumer that does not heed streams read after the producer's work all the same.

The driver is called only if the program has loaded and initialized it: otherwise nothing can be
pending. In a forked process it is not called where it was known before the fork that the parent
uses CUDA, as CUDA fails there. The handle of a stream that was destroyed is undefined behavior to
the driver: nobody can check for that.

Source: CUDA driver API reference, "Stream Management", "Event Management"; CUDA programming guide,
"Stream Capture".
"""

from __future__ import annotations

import ctypes
import sys

from cudaguard.features.array_interface.interface import LEGACY_STREAM
from cudaguard.features.array_interface.policy.faults import refused
from cudaguard.features.array_interface.repair.contexts import (
    DEFAULTS,
    contexts_of,
    current,
    device_of,
    driver,
    relaxed,
)
from cudaguard.system.driver_status import meaning
from cudaguard.system.modules import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudaguard.features.array_interface.consumers import Consumer
    from cudaguard.features.array_interface.repair.contexts import StreamPlace

_INVALID_HANDLE, _LACKING = 400, 500  # CUresult; the latter: this driver has no such function
_WITHOUT_TIMES = 2  # CU_EVENT_DISABLE_TIMING

# What was made to wait.
NOBODY, HOST, READER = "", "host", "reader"


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
    waits = make_wait(_reader(consumer, pointer), stream, pointer)
    if waits == HOST:
        return "the host has waited for it"
    return f"the stream that {consumer.name} reads on was made to wait for it" if waits else ""


def make_wait(reader: int | None, stream: int, pointer: int) -> str:
    """Make a stream wait for the work that is pending on another one; nothing if none can be.

    Args:
        reader: The stream that is to wait; None for the host.
        stream: The producer's.
        pointer: Address of the data.

    Returns:
        Who waits: `NOBODY`, `HOST` or `READER`.

    Raises:
        RefusedError: As for `order`.
    """
    if (reader == stream and reader not in DEFAULTS) or not driver.state().is_initialized:
        return NOBODY
    with relaxed(), contexts_of(pointer) as contexts:
        producers = contexts.of_producer(stream)
        if not producers:
            raise refused(
                "stream", stream, "it is the default stream of a context, and none is current or "
                "active on the device of the data",
                "make that context current in this thread, or synchronize and hand the array over "
                "with stream=None",
            )  # fmt: skip
        readers = () if reader is None else contexts.of_reader(reader)
        if not readers:  # a default stream of a context that is yet to come waits for nobody
            for place in producers:
                _synchronize(place)
            return HOST
        waits = [_wait(readers, place) for place in producers]
    return HOST if HOST in waits else READER if READER in waits else NOBODY


def _reader(consumer: Consumer, pointer: int) -> int | None:
    """Return the stream that the consumer will read on, None if that is not known."""
    if consumer.current_stream != "torch.cuda.current_stream":
        return None
    cuda = peek(sys.modules.get("torch"), "cuda")
    if cuda is None:
        return None
    if not cuda.is_initialized():  # it will begin on its default stream; asking would begin now
        return LEGACY_STREAM
    stream = cuda.current_stream(device_of(pointer))
    return int(stream.cuda_stream) or LEGACY_STREAM


def _synchronize(producer: StreamPlace) -> None:
    with current(producer.context):
        _refuse_capture(_is_captured(producer, producer), False, producer)
        _do("cuStreamSynchronize", producer, ctypes.c_void_p(producer.stream))


def _wait(readers: Sequence[StreamPlace], producer: StreamPlace) -> str:
    """Make readers wait for a producer by an event, which is bound to the producer's context."""
    readers = [reader for reader in readers if reader != producer]
    if not readers:
        return NOBODY
    captured = []
    for reader in readers:
        with current(reader.context):
            captured.append(_is_captured(reader, producer))
    event = ctypes.c_void_p()
    with current(producer.context):
        for is_reader_captured in captured:
            _refuse_capture(_is_captured(producer, producer), is_reader_captured, producer)
        _do("cuEventCreate", producer, ctypes.byref(event), _WITHOUT_TIMES)
    try:
        with current(producer.context):
            status = driver.call("cuEventRecord", event, ctypes.c_void_p(producer.stream))
        if status == _INVALID_HANDLE:  # a stream that takes no events of its context
            _synchronize(producer)
            return HOST
        _check("cuEventRecord", status, producer)
        for reader in readers:
            with current(reader.context):
                _do("cuStreamWaitEvent", producer, ctypes.c_void_p(reader.stream), event, 0)
    finally:
        driver.call("cuEventDestroy_v2", event)  # what waits for it goes on waiting
    return READER


def _refuse_capture(is_captured: bool, is_with_reader: bool, producer: StreamPlace) -> None:
    """Keep captures of graphs whole: waiting from outside would break one off."""
    if is_captured != is_with_reader:
        raise refused(
            "stream", producer.stream,
            "a graph is being captured, which no stream outside it can wait for",
            "hand the array over before the capture begins, or on the captured stream",
        )  # fmt: skip


def _is_captured(place: StreamPlace, producer: StreamPlace) -> bool:
    """Return whether a stream of the current context is captured."""
    status, handle = ctypes.c_int(), ctypes.c_void_p(place.stream)
    answer = driver.call("cuStreamIsCapturing", handle, ctypes.byref(status))
    if answer == _LACKING:  # older than CUDA 10
        return False
    _check("cuStreamIsCapturing", answer, producer)
    return status.value != 0


def _do(call: str, producer: StreamPlace, *arguments: object) -> None:
    _check(call, driver.call(call, *arguments), producer)


def _check(call: str, status: int, producer: StreamPlace) -> None:
    if status:
        raise refused(
            "stream", producer.stream, f"{call} answers {status}: {meaning(status)}",
            "synchronize that stream, then hand the array over with stream=None",
        )  # fmt: skip
