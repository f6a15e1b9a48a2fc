"""Where the streams of producers and readers are: a stream is one of a context.

The handles of the default streams (1 and 2) mean those of whatever context is current in the
calling thread. Memory of a pool, and memory that was mapped (torch's expandable segments), belongs
to a device and to no context.

Source: CUDA driver API reference, "Stream Management" (``cuStreamGetCtx_v2``), "Context
Management", "Primary Context Management", "Unified Addressing"; CUDA programming guide, "Stream
Ordered Memory Allocator", "Pointer Attributes".
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from typing import NamedTuple

from cudaguard.features.array_interface.interface import LEGACY_STREAM, PER_THREAD_STREAM
from cudaguard.system.driver import Driver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULTS = (LEGACY_STREAM, PER_THREAD_STREAM)
_CONTEXT, _ORDINAL = 1, 9  # CU_POINTER_ATTRIBUTE_...
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED

driver = Driver()


class StreamPlace(NamedTuple):
    """A stream.

    Args:
        context: The context that the handle is valid in; 0 for the one that is current.
        stream: The handle.
    """

    context: int
    stream: int


class Contexts:
    """Finds the places of streams, and retains primary contexts for it until `release`.

    Args:
        pointer: Address of the data.
    """

    def __init__(self, pointer: int) -> None:
        self._pointer = pointer
        self._retained: dict[int, int] = {}  # device -> context

    def release(self) -> None:
        """Release what was retained."""
        while self._retained:
            driver.call("cuDevicePrimaryCtxRelease_v2", self._retained.popitem()[0])

    def of_producer(self, stream: int) -> tuple[StreamPlace, ...]:
        """Return where the producer's stream is; nothing if that cannot be known.

        Several, where it may be the default stream of one context or of another.
        """
        if stream in DEFAULTS:
            context = ctypes.c_void_p()
            address = ctypes.c_uint64(self._pointer)
            failed = driver.call("cuPointerGetAttribute", ctypes.byref(context), _CONTEXT, address)
            if context.value and not failed:
                return (StreamPlace(context.value, stream),)
        return self.of_reader(stream)

    def of_reader(self, stream: int) -> tuple[StreamPlace, ...]:
        """Return where a stream is that reads; nothing if it is not there yet.

        The default streams are those of the primary context of the data's device, which torch and
        the CUDA runtime use, and of a context of somebody's own that is current on that device.
        """
        if stream not in DEFAULTS:
            return (StreamPlace(_context_of(stream), stream),)
        device, current = device_of(self._pointer), driver.current_context()
        if device is None:  # memory that no driver knows
            return (StreamPlace(current, stream),) if current else ()
        now = ctypes.c_int()
        is_there = current and not driver.call("cuCtxGetDevice", ctypes.byref(now))
        found = {self._primary(device), current if is_there and now.value == device else 0}
        return tuple(StreamPlace(context, stream) for context in sorted(found) if context)

    def _primary(self, device: int) -> int:
        """Return the primary context of a device, 0 if it is not active."""
        if device not in self._retained:
            flags, active, context = ctypes.c_uint(), ctypes.c_int(), ctypes.c_void_p()
            state = ctypes.byref(flags), ctypes.byref(active)
            if driver.call("cuDevicePrimaryCtxGetState", device, *state) or not active.value:
                return 0
            if driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device):
                return 0
            self._retained[device] = context.value or 0
        return self._retained[device]


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


def device_of(pointer: int) -> int | None:
    """Return the ordinal of the device that has an address; None if the driver knows of none."""
    if not driver.state().is_initialized:
        return None
    device, address = ctypes.c_int(), ctypes.c_uint64(pointer)
    status = driver.call("cuPointerGetAttribute", ctypes.byref(device), _ORDINAL, address)
    return None if status else device.value


@contextmanager
def contexts_of(pointer: int) -> Iterator[Contexts]:
    """Find places of streams for the data at an address, for a while."""
    contexts = Contexts(pointer)
    try:
        yield contexts
    finally:
        contexts.release()


@contextmanager
def current(context: int) -> Iterator[None]:
    """Make a context current in this thread for a while; 0 leaves it as it is."""
    is_pushed = context and driver.call("cuCtxPushCurrent_v2", ctypes.c_void_p(context)) == 0
    try:
        yield
    finally:
        if is_pushed:
            driver.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


@contextmanager
def relaxed() -> Iterator[None]:
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
