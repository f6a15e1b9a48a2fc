"""Hand an array over to a consumer: as it is where that will do, else as a view."""

from __future__ import annotations

import os

from cudaguard.features.array_interface.consumers import IGNORES
from cudaguard.features.array_interface.interface import AUTO
from cudaguard.features.array_interface.policy.canonical import absent, canonical, check
from cudaguard.features.array_interface.policy.faults import RefusedError, error_of, name_of
from cudaguard.features.array_interface.policy.quick import in_good_form
from cudaguard.features.array_interface.repair.view import View
from cudaguard.model import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cudaguard.features.array_interface.consumers import Consumer
    from cudaguard.features.array_interface.policy.faults import Fault

_told: set[Note] = set()


class Note(Record):
    """Something to tell of a hand-over, once per class and consumer.

    Args:
        producer: Class of the array, with its module.
        consumer: Name of the consumer.
        ordered: What was done to have it wait, as a clause; empty if the note is of a read-only
            array that it may write to.
    """

    __slots__ = ("consumer", "ordered", "producer")
    producer: str
    consumer: str
    ordered: str

    def __init__(self, producer: str, consumer: str, ordered: str = "") -> None:
        self._fill(producer=producer, consumer=consumer, ordered=ordered)


def hand_over(obj: Any, consumer: Consumer, stream: Any, tell: Callable[[Note], None]) -> Any:
    """Return what to give the consumer: the array itself if it will read that rightly.

    Args:
        obj: The array. Its interface is read once.
        consumer: Who is to read it.
        stream: As for `cudaguard.normalize`.
        tell: Takes what the program should hear of.

    Raises:
        ArrayInterfaceError: As for `cudaguard.normalize`.
    """
    cai = read(obj)
    if stream is AUTO:
        good = in_good_form(cai, consumer)
        if good is not None:
            owner = obj.owner if type(obj) is View else obj
            return obj if good is cai else View(owner, good)
    return prepare(obj, cai, consumer, stream, tell)


def read(obj: Any) -> Any:
    """Return the interface of an array.

    Raises:
        ArrayInterfaceError: It has none. What its property raises otherwise goes out.
    """
    try:
        return obj.__cuda_array_interface__
    except AttributeError as error:
        raise error_of(absent(type(obj)), type(obj)) from error


def prepare(
    obj: Any, cai: Any, consumer: Consumer, stream: Any, tell: Callable[[Note], None]
) -> Any:
    """Do the same for an array whose interface has been read.

    Raises:
        ArrayInterfaceError: As for `cudaguard.normalize`.
    """
    owner = obj.owner if type(obj) is View else obj
    kind = type(owner)
    is_given = stream is not AUTO
    try:
        if is_given:
            from cudaguard.features.array_interface.repair.streams import handle_of

            stream = handle_of(stream)
        legal = canonical(cai, consumer, kind, os.environ, stream)
        ordered = ""
        pending, (pointer, is_read_only) = legal.get("stream"), legal["data"]
        if pending is not None and pointer and consumer.stream == IGNORES:
            from cudaguard.features.array_interface.repair.order import order

            ordered = order(pending, consumer, pointer)
    except RefusedError as error:
        raise error_of(error.fault, kind, is_stream_given=is_given) from error.__cause__
    if ordered:
        _tell_once(Note(name_of(kind), consumer.name, ordered), tell)
    if is_read_only and consumer.read_only == IGNORES:
        _tell_once(Note(name_of(kind), consumer.name), tell)
    return obj if legal is cai else View(owner, legal)


def _tell_once(note: Note, tell: Callable[[Note], None]) -> None:
    if note not in _told:
        _told.add(note)
        tell(note)


def faults_of(obj: Any) -> tuple[Fault, ...]:
    """Return all that is wrong with the interface of an object, read once."""
    try:
        cai = obj.__cuda_array_interface__
    except AttributeError:
        return (absent(type(obj)),)
    return check(cai, type(obj), os.environ)
