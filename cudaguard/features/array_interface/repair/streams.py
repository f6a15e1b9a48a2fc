"""Finds the stream that an object stands for."""

from __future__ import annotations

import os

from cudaguard.features.array_interface.policy.canonical import zero_means
from cudaguard.features.array_interface.policy.faults import refused
from cudaguard.features.array_interface.policy.fields import read_stream, whole_number
from cudaguard.features.array_interface.policy.profiles import producer_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# How stream objects tell their handle: torch; CuPy; PyCUDA and numba.
_HANDLES = ("cuda_stream", "ptr", "handle")


def handle_of(stream: object) -> int | None:
    """Return the number of the stream that the caller of `normalize` means; None for None.

    Args:
        stream: A number, or a stream object of cuda.core, torch, CuPy, numba or PyCUDA.

    Raises:
        RefusedError: It stands for no stream.
    """
    if stream is None:
        return None
    if type(stream) is int:
        return read_stream(stream)
    try:
        handle = _told(stream)
    except Exception as error:  # of a foreign class
        raise refused("stream", stream) from error
    number = whole_number(handle, "stream")
    # The default stream of a library is 0 to itself.
    return read_stream(number) or zero_means(producer_of(type(stream)), os.environ)


def _told(stream: Any) -> object:
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return protocol()[1]
    for name in _HANDLES:
        handle = getattr(stream, name, None)
        if handle is not None:
            # numba has a ctypes pointer there, whose value is None where it is null.
            return getattr(handle, "value", handle) or 0
    return stream
