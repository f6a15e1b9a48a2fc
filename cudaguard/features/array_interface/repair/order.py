"""Have a consumer that does not heed streams read after the producer's work all the same.

The driver is called only if the program has loaded and initialized it: otherwise nothing can be
pending. In a forked process it is not called where it was known before the fork that the parent
uses CUDA, as CUDA fails there.

Source: CUDA driver API reference, "Stream Management", "Event Management", "Context Management",
"Unified Addressing"; CUDA programming guide, "Stream Capture".
"""

from __future__ import annotations

import ctypes
import sys

from cudaguard.features.array_interface.interface import LEGACY_STREAM, PER_THREAD_STREAM
from cudaguard.features.array_interface.policy.faults import refused
from cudaguard.system.driver import Driver
from cudaguard.system.driver_status import meaning
from cudaguard.system.modules import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.features.array_interface.consumers import Consumer

_LACKING = 500  # CUDA_ERROR_NOT_FOUND: this driver has no such function
_WITHOUT_TIMES = 2  # CU_EVENT_DISABLE_TIMING
_CONTEXT, _ORDINAL = 1, 9  # CU_POINTER_ATTRIBUTE_...

_driver = Driver()


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
    if not _driver.state().is_initialized:
        return ""
    reader = _reader(consumer, pointer)
    if reader == stream:
        return ""
    make_wait(reader, stream, pointer)
    if reader is None:
        return "the host has waited for it"
    return f"the stream that {consumer.name} reads on was made to wait for it"


def make_wait(reader: int | None, stream: int, pointer: int) -> None:
    """Make a stream wait for the work that is pending on another one; nothing if none can be.

    Args:
        reader: The stream that is to wait; None for the host.
        stream: The producer's.
        pointer: Address of the data.

    Raises:
        RefusedError: As for `order`.
    """
    if not _driver.state().is_initialized:
        return
    entered = _enter(stream, pointer)
    try:
        if reader is None:
            _refuse_capture(stream, False)
            _do("cuStreamSynchronize", stream, ctypes.c_void_p(stream))
        else:
            _refuse_capture(stream, _is_captured(reader, stream))
            _wait(reader, stream)
    finally:
        if entered:
            _driver.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


def device_of(pointer: int) -> int | None:
    """Return the ordinal of the device that has an address; None if the driver knows of none."""
    if not _driver.state().is_initialized:
        return None
    device, address = ctypes.c_int(), ctypes.c_uint64(pointer)
    status = _driver.call("cuPointerGetAttribute", ctypes.byref(device), _ORDINAL, address)
    return None if status else device.value


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


def _enter(stream: int, pointer: int) -> bool:
    """Make the context of a stream current in this thread; False if it is left as it is.

    Events are bound to contexts, and the default streams are those of the current one.
    """
    context = ctypes.c_void_p()
    if stream in (LEGACY_STREAM, PER_THREAD_STREAM):
        address = ctypes.c_uint64(pointer)
        status = _driver.call(
            "cuPointerGetAttribute", ctypes.byref(context), _CONTEXT, address
        )  # fmt: skip
    else:
        status = _driver.call("cuStreamGetCtx", ctypes.c_void_p(stream), ctypes.byref(context))
    if status or not context.value:  # memory of a pool belongs to no context
        return False
    return _driver.call("cuCtxPushCurrent_v2", context) == 0


def _wait(reader: int, stream: int) -> None:
    event = ctypes.c_void_p()
    _do("cuEventCreate", stream, ctypes.byref(event), _WITHOUT_TIMES)
    try:
        _do("cuEventRecord", stream, event, ctypes.c_void_p(stream))
        _do("cuStreamWaitEvent", stream, ctypes.c_void_p(reader), event, 0)
    finally:
        _driver.call("cuEventDestroy_v2", event)  # what waits for it goes on waiting


def _refuse_capture(stream: int, is_with_reader: bool) -> None:
    """Keep captures of graphs whole: waiting from outside would break one off."""
    if _is_captured(stream, stream) != is_with_reader:
        raise refused(
            "stream", stream, "a graph is being captured, which no stream outside it can wait for",
            "hand the array over before the capture begins, or on the captured stream",
        )  # fmt: skip


def _is_captured(stream: int, producers: int) -> bool:
    status, answer = ctypes.c_int(), 0
    answer = _driver.call("cuStreamIsCapturing", ctypes.c_void_p(stream), ctypes.byref(status))
    if answer == _LACKING:  # older than CUDA 10
        return False
    _check("cuStreamIsCapturing", answer, producers)
    return status.value != 0


def _do(call: str, stream: int, *arguments: object) -> None:
    _check(call, _driver.call(call, *arguments), stream)


def _check(call: str, status: int, stream: int) -> None:
    if status:
        raise refused(
            "stream", stream, f"{call} answers {status}: {meaning(status)}",
            "synchronize that stream, then hand the array over with stream=None",
        )  # fmt: skip
