"""Hand an array over to a consumer: as it is where that will do, else as a view."""

from __future__ import annotations

from cudaguard.core.caller import caller_frame
from cudaguard.features.array_interface import messages as wording
from cudaguard.features.array_interface.canonical import (
    absent,
    canonical,
    check,
    in_good_form,
)
from cudaguard.features.array_interface.consumers import IGNORES
from cudaguard.features.array_interface.faults import RefusedError, error_of, name_of, refused
from cudaguard.features.array_interface.interface import AUTO
from cudaguard.features.array_interface.producers import zero_means
from cudaguard.features.array_interface.reading import read_stream, whole_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cudaguard.core.reports import Reporter
    from cudaguard.features.array_interface.consumers import Consumer
    from cudaguard.features.array_interface.faults import Fault

_told: set[tuple[str, str, str]] = set()  # class, consumer, and what was ordered: told once each
# How stream objects tell their handle: torch; CuPy; PyCUDA and numba.
_HANDLES = ("cuda_stream", "ptr", "handle")


class View:
    """An array interface and nothing else; keeps the array alive whose memory it describes.

    It has no other protocol, so that nobody takes it for the array itself or finds another way
    into it. The interface is as it was when the view was made.

    Args:
        owner: The array.
        interface: What to show.
    """

    __slots__ = ("__weakref__", "_interface", "owner")

    def __init__(self, owner: object, interface: Any) -> None:
        self.owner = owner
        self._interface = interface

    @property
    def __cuda_array_interface__(self) -> Any:
        return self._interface

    def __reduce_ex__(self, protocol: object) -> Any:
        # A copy of the array has memory elsewhere, and the address would be that of the first.
        raise TypeError("a view of an array can neither be copied nor pickled: take the array")

    def __repr__(self) -> str:
        kind = type(self.owner)
        return f"<cudaguard view of {kind.__module__}.{kind.__qualname__}>"


def hand_over(obj: Any, consumer: Consumer, stream: Any, reporter: Reporter) -> Any:
    """Return what to give the consumer: the array itself if it reads that correctly.

    Args:
        obj: The array. Its interface is read once.
        consumer: Who is to read it.
        stream: As for `cudaguard.normalize`.
        reporter: Receives the findings.

    Raises:
        ArrayInterfaceError: As for `cudaguard.normalize`.
    """
    try:
        cai = obj.__cuda_array_interface__
    except AttributeError as error:
        raise error_of(absent(type(obj)), type(obj)) from error
    if stream is AUTO:
        good = in_good_form(cai, consumer)
        if good is not None:
            owner = obj.owner if type(obj) is View else obj
            return obj if good is cai else View(owner, good)
    return prepare(obj, cai, consumer, stream, reporter)


def prepare(obj: Any, cai: Any, consumer: Consumer, stream: Any, reporter: Reporter) -> Any:
    """Do the same for an array whose interface has been read.

    Raises:
        ArrayInterfaceError: As for `cudaguard.normalize`.
    """
    owner = obj.owner if type(obj) is View else obj
    kind = type(owner)
    is_given = stream is not AUTO
    try:
        if is_given:
            stream = _handle_of(stream)
        legal = canonical(cai, consumer, kind, stream)
        ordered = ""
        pending, (pointer, is_read_only) = legal.get("stream"), legal["data"]
        if pending is not None and pointer and consumer.stream == IGNORES:
            from cudaguard.features.array_interface.waiting import order

            ordered = order(pending, consumer, pointer)
    except RefusedError as error:
        raise error_of(error.fault, kind, is_stream_given=is_given) from error.__cause__
    if ordered and _is_new(name_of(kind), consumer.name, ordered):
        finding = wording.ordered(name_of(kind), consumer.name, ordered)
        reporter.log(f"{finding.id}: {finding.what}")
        reporter.found(finding, caller_frame())
    if is_read_only and consumer.read_only == IGNORES and _is_new(name_of(kind), consumer.name):
        reporter.found(wording.may_be_written(name_of(kind), consumer.name), caller_frame())
    return obj if legal is cai else View(owner, legal)


def _is_new(producer: str, consumer: str, ordered: str = "") -> bool:
    key = (producer, consumer, ordered)
    is_new = key not in _told
    _told.add(key)
    return is_new


def faults_of(obj: Any) -> tuple[Fault, ...]:
    """Return all that is wrong with the interface of an object, read once."""
    try:
        cai = obj.__cuda_array_interface__
    except AttributeError:
        return (absent(type(obj)),)
    return check(cai, type(obj))


def _handle_of(stream: object) -> int | None:
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
        handle = _as_told(stream)
    except Exception as error:  # of a foreign class
        raise refused("stream", stream) from error
    number = whole_number(handle, "stream")
    # The default stream of a library is 0 to itself.
    return read_stream(number) or zero_means(type(stream))


def _as_told(stream: Any) -> object:
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return protocol()[1]
    for name in _HANDLES:
        handle = getattr(stream, name, None)
        if handle is not None:
            # numba has a ctypes pointer there, whose value is None where it is null.
            return getattr(handle, "value", handle) or 0
    return stream
