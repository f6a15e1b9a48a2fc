"""The functions for arrays: ``normalize`` and ``validate``."""

from __future__ import annotations

from cudaguard.core.lifecycle import activation
from cudaguard.features.array_interface.consumers import ANYONE, consumer_for
from cudaguard.features.array_interface.interface import (
    AUTO,
    EntryError,
    absent,
    as_dictionary,
    canonical,
    is_canonical,
    read_interface,
    type_name,
    whole_number,
    zero_means,
)
from cudaguard.files import program_errors
from cudaguard.hooks.caller import caller_frame
from cudaguard.model import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from cudaguard.core.findings import Finding
    from cudaguard.core.reports import Reporter
    from cudaguard.features.array_interface.consumers import Consumer

_waited_for: set[tuple[str, str]] = set()  # class and consumer: told once each
# How stream objects tell their handle: torch; CuPy; PyCUDA and numba.
_HANDLES = ("cuda_stream", "ptr", "handle")


class View:
    """An array interface and nothing else; keeps the array alive whose memory it describes.

    It has no other protocol, so that nobody takes it for the array itself or finds another way
    into it. The interface is as it was when the view was made.
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
        return f"<cudaguard view of {type_name(type(self.owner))}>"


def normalize(
    obj: Any, *, consumer: ModuleType | type | str | None = None, stream: Any = AUTO
) -> Any:
    """Return an array with ``__cuda_array_interface__`` in a form that its consumer reads.

    That is the array itself where nothing has to be changed; else a view that has the interface,
    and nothing more, and keeps the array alive. What is changed describes the same bytes with the
    same protection, and asks for at least the same synchronization.

    For a consumer that does not look at streams, the host waits for the producer's.

    Args:
        obj: The array. The property is read once; what it raises goes out, but for
            AttributeError.
        consumer: Who is to read it: a name such as ``"dali"``, ``"torch"`` or ``"cupy"``, a module
            or a class of it; None for any reader that keeps to the specification.
        stream: On which stream the work that is pending on the array was started: a number other
            than 0, or a stream of cuda.core, torch, CuPy, numba or PyCUDA; None vouches that none
            is pending. It counts more than what the array says. Left out: what the array says.

    Raises:
        ArrayInterfaceError: It has no interface, or one that cannot be brought into such a form
            without a guess or a loss: a mask, read-only data, big-endian or strided data for a
            consumer that has no notion of them; a stream 0 of an unknown library; nonsense. The
            attributes ``field``, ``value``, ``rule`` and ``remedy`` say what and why.
        ValueError: The consumer is not known; the message has the nearest name and all names.
    """
    profile = ANYONE if consumer is None else consumer_for(consumer)
    try:
        cai = obj.__cuda_array_interface__
    except AttributeError as error:
        raise absent(type(obj)).as_error(type(obj)) from error
    if stream is AUTO and is_canonical(cai, profile):
        return obj
    return prepare(obj, cai, profile, activation.core.reporter, stream)


def validate(obj: Any) -> list[Finding]:
    """Return what keeps an object from conforming to the CUDA array interface; changes nothing.

    Source: https://nvidia.github.io/numba-cuda/user/cuda_array_interface.html

    Args:
        obj: The array. The property is read once; what it raises goes out, but for
            AttributeError.

    Returns:
        One finding for each entry at fault, with severity ``warning`` where `normalize` corrects
        it, ``error`` where it cannot. An empty list for an array that conforms.
    """
    from cudaguard.features.array_interface import findings

    kind = type(obj)
    try:
        cai = obj.__cuda_array_interface__
    except AttributeError:
        return [findings.not_conforming(type_name(kind), absent(kind))]
    try:
        _, faults = read_interface(as_dictionary(cai), kind)
    except EntryError as fault:
        faults = [fault]
    return [findings.not_conforming(type_name(kind), fault) for fault in faults]


def prepare(obj: Any, cai: Any, consumer: Consumer, reporter: Reporter, stream: Any = AUTO) -> Any:
    """Return what to give a consumer for an array whose interface was read; see `normalize`."""
    owner = obj.owner if type(obj) is View else obj
    kind = type(owner)
    is_given = stream is not AUTO
    try:
        if is_given:
            stream = _number_of(stream)
        legal = canonical(cai, consumer, kind, stream)
        waits = False
        if legal.get("stream") is not None and not consumer.heeds_stream:
            from cudaguard.features.array_interface import waiting

            waits = waiting.wait_for(legal["stream"], legal["data"][0])
    except EntryError as fault:
        raise fault.as_error(kind, is_stream_given=is_given) from fault.__cause__
    key = type_name(kind), consumer.name
    if waits and key not in _waited_for:
        from cudaguard.features.array_interface import findings

        _waited_for.add(key)
        finding = findings.waited(*key, legal["stream"])
        reporter.log(f"{finding.id}: {finding.what}")
        reporter.found(finding, caller_frame())
    return obj if legal is cai else View(owner, legal)


def _number_of(stream: Any) -> int | None:
    """Return the number of the stream that the caller of `normalize` means, or an `EntryError`."""
    if stream is None or type(stream) is int:
        return stream
    try:
        handle = stream
        if hasattr(stream, "__cuda_stream__"):
            handle = stream.__cuda_stream__()[1]
        else:
            for name in _HANDLES:
                handle = getattr(stream, name, handle)
        # numba has a ctypes pointer there, whose value is None where it is null.
        number = whole_number(getattr(handle, "value", handle) or 0, "stream")
    except EntryError:
        raise
    except program_errors(Exception) as error:  # of a foreign class
        raise EntryError("stream", stream) from error
    return number or zero_means(type(stream))  # a library's default stream is 0 to itself
