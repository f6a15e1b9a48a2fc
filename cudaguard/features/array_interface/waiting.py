"""Have the host wait for the work that is pending on a producer's stream.

The driver is called only if the program has loaded and initialized it: otherwise nothing can be
pending. In a forked process it is not called where it was known before the fork that the parent
uses CUDA, as CUDA fails there. The handle of a stream that was destroyed is undefined behavior to
the driver: nobody can check for that.

A stream is one of a context. The handles of the default streams (1 and 2) mean those of whatever
context is current in the calling thread. Memory of a pool, and memory that was mapped (torch's
expandable segments), belongs to a device and to no context.

Source: CUDA driver API reference, "Stream Management", "Context Management", "Primary Context
Management", "Unified Addressing"; CUDA programming guide, "Stream Capture", "Stream Ordered Memory
Allocator".
"""

from __future__ import annotations

import ctypes
from contextlib import ExitStack

from cudaguard.features.array_interface.interface import (
    LEGACY_STREAM,
    PER_THREAD_STREAM,
    EntryError,
)
from cudaguard.system.driver import Driver
from cudaguard.system.statuses import meaning

_CONTEXT, _ORDINAL = 1, 9  # CU_POINTER_ATTRIBUTE_...
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED

driver = Driver()


def wait_for(stream: int, pointer: int) -> bool:
    """Wait for a stream; return False if nothing can be pending on it.

    An `EntryError` says why the driver cannot do it, as while a graph is captured.
    """
    if not pointer or not driver.state().is_initialized:
        return False
    with ExitStack() as undone:
        # What is called here is no part of any graph: captures of other threads, which it would
        # break off otherwise, need not observe it.
        mode = ctypes.byref(ctypes.c_int(_RELAXED))
        if driver.call("cuThreadExchangeStreamCaptureMode", mode) == 0:
            undone.callback(driver.call, "cuThreadExchangeStreamCaptureMode", mode)
        if not (contexts := _contexts_of(stream, pointer, undone)):
            rule = (
                "it is the default stream of a context, and none is current or active on the "
                "device of the data"
            )
            remedy = (
                "make that context current in this thread, or synchronize and hand the array over "
                "with stream=None"
            )
            raise EntryError("stream", stream, rule, remedy)
        for context in contexts:
            if context and driver.call("cuCtxPushCurrent_v2", ctypes.c_void_p(context)) == 0:
                undone.callback(driver.call, "cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
            _synchronize(stream)
    return True


def _synchronize(stream: int) -> None:
    """Wait for a stream of the current context, unless that would break a capture off."""
    captured, handle = ctypes.c_int(), ctypes.c_void_p(stream)
    call = "cuStreamIsCapturing"
    status = driver.call(call, handle, ctypes.byref(captured))
    if not status and captured.value:
        rule = "a graph is being captured, which nothing outside it can wait for"
        remedy = "hand the array over before the capture begins, or with stream=None"
        raise EntryError("stream", stream, rule, remedy)
    if not status:
        call = "cuStreamSynchronize"
        status = driver.call(call, handle)
    if status:
        rule = f"{call} answers {status}: {meaning(status)}"
        remedy = "synchronize that stream, then hand the array over with stream=None"
        raise EntryError("stream", stream, rule, remedy)


def _contexts_of(stream: int, pointer: int, undone: ExitStack) -> tuple[int, ...]:
    """Return the contexts that a stream may be one of, 0 for the current one; none if unknown.

    A default stream is that of the context in which the data was allocated. For data that belongs
    to a device only, it may be that of the primary context, which torch and the CUDA runtime use,
    or of a context of somebody's own that is current on that device.
    """
    if stream not in (LEGACY_STREAM, PER_THREAD_STREAM):
        return (_context_of(stream),)
    context, address, device = ctypes.c_void_p(), ctypes.c_uint64(pointer), ctypes.c_int()
    ask = "cuPointerGetAttribute"
    if driver.call(ask, ctypes.byref(context), _CONTEXT, address) == 0 and context.value:
        return (context.value,)
    current = driver.current_context()
    if driver.call(ask, ctypes.byref(device), _ORDINAL, address):  # memory that no driver knows
        return (current,) if current else ()
    now = ctypes.c_int()
    is_there = current and not driver.call("cuCtxGetDevice", ctypes.byref(now))
    found = {
        _primary(device.value, undone),
        current if is_there and now.value == device.value else 0,
    }
    return tuple(sorted(filter(None, found)))


def _primary(device: int, undone: ExitStack) -> int:
    """Return the primary context of a device, retained for a while; 0 if it is not active."""
    flags, active, context = ctypes.c_uint(), ctypes.c_int(), ctypes.c_void_p()
    state = ctypes.byref(flags), ctypes.byref(active)
    if driver.call("cuDevicePrimaryCtxGetState", device, *state) or not active.value:
        return 0
    if driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device):
        return 0
    undone.callback(driver.call, "cuDevicePrimaryCtxRelease_v2", device)
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
