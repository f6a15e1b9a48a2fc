"""Arrays that are handed over to libraries, normalized where a rule says so; exports, corrected.

A method is replaced by a closure on its class: nothing else changes of the class, its instances,
and how they are pickled. A function is wrapped by `wrapt`, which keeps its name, signature and
module. All are put back by `undo`, unless somebody has replaced them since; what somebody else
still holds hands on what it is given from then on.
"""

from __future__ import annotations

import functools
import inspect
import sys
from dataclasses import replace
from operator import attrgetter
from types import FunctionType

from cudaguard.core.barrier import ON_PURPOSE
from cudaguard.core.caller import caller_frame
from cudaguard.core.patterns import actions_of
from cudaguard.core.replace import Replaced
from cudaguard.core.request import Done, Refused, WouldDo
from cudaguard.errors import ArrayInterfaceError
from cudaguard.features.array_interface import findings as wording
from cudaguard.features.array_interface.canonical import (
    absent,
    canonical,
    check,
    in_good_form,
)
from cudaguard.features.array_interface.consumers import (
    ANYONE,
    AS_EXPORTED,
    HEEDS,
    IGNORES,
    consumer_of,
    producer_of,
    zero_means,
)
from cudaguard.features.array_interface.interface import (
    AUTO,
    INTERFACE,
    RefusedError,
    error_of,
    name_of,
    refused,
    shown,
)
from cudaguard.features.array_interface.waiting import read_stream, whole_number
from cudaguard.files import ours, theirs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from cudaguard.core.permit import Permit
    from cudaguard.core.reports import Reporter
    from cudaguard.core.request import Outcome, Request
    from cudaguard.features.array_interface.consumers import Consumer
    from cudaguard.features.array_interface.interface import Fault

    Take = Callable[[Any], Any]

# --- Hand an array over to a consumer: as it is where that will do, else as a view ----------------

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


_MOST = 64  # classes that are remembered for speed: they are kept alive by it


def put_up(request: Request) -> Iterator[Outcome]:
    """Replace the entry points and exports that a rule names, in a module that is imported."""
    if request.name not in request.rule.watch:
        return
    for action in actions_of(request.rule, "normalize_argument", "fix_array_interface"):
        verb, path = next(iter(action.items()))
        place = f"{request.name}.{path}"
        make: Callable[..., Replaced]
        try:
            if verb == "normalize_argument":
                owner, _ = _resolve(request.name, path)
                make = functools.partial(_precede, request, path, action["parameter"])
            else:
                owner, _ = _resolve(request.name, f"{path}.{INTERFACE}")
                make = functools.partial(_correct, request, path)
            if request.put(place, owner, make):
                yield Done(place, wording.PUT_UP[verb], verb=verb, stays=False)
        except (AttributeError, ImportError, KeyError, TypeError) as error:
            yield WouldDo(wording.no_such_entry(request.rule.id, place, error))


# --- what consumers are given -----------------------------------------------------------------


def _precede(request: Request, path: str, parameter: str, _: object, permit: Permit) -> Replaced:
    """Have each call of an entry point given what its consumer reads rightly.

    Args:
        request: Asks for it.
        path: A function of the module, or a method, as in ``TensorGPU.__init__``.
        parameter: Name of the parameter that takes the array: the first one, ``self`` apart.
        permit: What may be done, at every call.

    Raises:
        AttributeError: There is no such entry point.
        TypeError: It cannot be replaced.
    """
    owner, name = _resolve(request.name, path)
    found = getattr(owner, name)
    if isinstance(found, type):
        raise TypeError(f"{path} is a class: name its constructor, {path}.__init__")
    if not callable(found):
        raise TypeError(f"{path} is no function, but {shown(found)}")
    take = _Taker(request, permit).take
    if not isinstance(owner, type):
        return Replaced(owner, name, _function(found, parameter, take))
    raw = inspect.getattr_static(owner, name)
    if isinstance(raw, staticmethod):
        return Replaced(owner, name, staticmethod(_function(raw.__func__, parameter, take)))
    if isinstance(raw, classmethod):
        return Replaced(owner, name, classmethod(_method(raw.__func__, parameter, take)))
    return Replaced(owner, name, _method(found, parameter, take))


class _Taker:
    """Prepares what is handed to one entry point.

    Args:
        request: Asks for it, and is told.
        permit: What may be done, at every call.
    """

    def __init__(self, request: Request, permit: Permit) -> None:
        self._permit = permit
        self._request = request
        self._consumer = consumer_of(request.name) or replace(ANYONE, name=request.name)
        self._always_views = self._consumer.reads_nothing_else
        self._own: dict[type, bool] = {View: True}
        self._told: set[tuple[str, ...]] = set()  # class and entries: once each
        self._spared: set[type] = set()  # classes of which it was told that a None is left out

    def take(self, obj: Any) -> Any:
        """Return what to hand over: a view, or the array itself."""
        kind: type = type(obj)
        is_own = self._own.get(kind)
        if is_own is None:
            is_own = self._look_at_class(kind)
        # It knows what to do with its own.
        if is_own or not self._permit.looks:
            return obj
        try:
            cai = obj.__cuda_array_interface__
        except AttributeError:
            return obj
        except theirs(Exception):
            if self._always_views:  # it would say that there is none, and hide the error
                raise
            return obj  # there may be another way to read it
        if cai is None:
            return obj
        may_repair = self._permit.acts
        try:
            good = in_good_form(cai, self._consumer)
            if good is cai:
                return View(obj, cai) if self._always_views and may_repair else obj
            if good is not None and may_repair and kind in self._spared:
                return View(obj, good)
            handed = self._mended(obj, cai, may_repair)
            if good is not None and len(self._spared) < _MOST:
                self._spared.add(kind)
        except ON_PURPOSE:
            raise
        except ours(Exception) as error:
            self._request.reporter.broken(f"preparing an array for {self._consumer.name}", error)
            return obj
        return handed

    def _look_at_class(self, kind: type) -> bool:
        is_own = any(map(self._consumer.owns, kind.__mro__))
        if len(self._own) < _MOST:
            self._own[kind] = is_own
        return is_own

    def _mended(self, obj: Any, cai: Any, may_repair: bool) -> Any:
        """Return what to hand over in place of an array that is not canonical."""
        request, consumer, kind = self._request, self._consumer, name_of(type(obj))
        if not may_repair:
            consumer = replace(consumer, stream=HEEDS)  # look only, and have nothing wait
        try:
            handed = prepare(obj, cai, consumer, AUTO, request.reporter)
        except ArrayInterfaceError as error:
            # The consumer has the last word: it may know more of this class than we do.
            finding = wording.handed_over_as_it_is(kind, consumer.name, error)
            if self._is_new(kind, error.field, ""):
                request.tell(Refused(finding, error), caller_frame())
            else:
                request.reporter.stop(error)
            return obj
        if handed is obj:
            return View(obj, cai) if self._always_views and may_repair else obj
        changes = _changed(cai, handed.__cuda_array_interface__)
        if self._is_new(kind, *changes):
            how = tuple(changes.values())
            finding = wording.mended(kind, consumer.name, how, request.rule.id, may_repair)
            if request.tell(WouldDo(finding), caller_frame()) and may_repair:
                request.reporter.log(f"{request.rule.id}: {finding.what}")
        return handed if may_repair else obj

    def _is_new(self, *key: str) -> bool:
        """Return True if nothing was told yet about that class and those entries, as in a loop."""
        if key in self._told:
            return False
        self._told.add(key)
        return True


def _method(original: Any, parameter: str, take: Take) -> Any:
    """Return a function whose first argument, an instance or a class, is left alone."""

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args:
            return original(self, take(args[0]), *args[1:], **kwargs)
        if parameter in kwargs:
            kwargs[parameter] = take(kwargs[parameter])
        return original(self, *args, **kwargs)

    return method


def _function(original: Any, parameter: str, take: Take) -> Any:
    import wrapt

    class FunctionWrapper(wrapt.FunctionWrapper):  # type: ignore[type-arg]  # generic in its stubs only
        """Pickled and copied as the function is that it stands for."""

        def __reduce_ex__(self, protocol: Any) -> Any:
            wrapped = self.__wrapped__
            if isinstance(wrapped, FunctionType):
                return wrapped.__qualname__  # by its name, which is ours as well
            return wrapped.__reduce_ex__(protocol)

        def __copy__(self) -> Any:
            return self

        def __deepcopy__(self, _: object) -> Any:
            return self

    def wrapper(wrapped: Any, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args:
            args = (take(args[0]), *args[1:])
        elif parameter in kwargs:
            kwargs = {**kwargs, parameter: take(kwargs[parameter])}
        return wrapped(*args, **kwargs)

    return FunctionWrapper(original, wrapper)


# --- what producers export --------------------------------------------------------------------


def _correct(request: Request, path: str, _: object, permit: Permit) -> Replaced:
    """Have what a class exports as its array interface corrected.

    Args:
        request: Asks for it.
        path: A class of the module.
        permit: What may be done, at every look.

    Raises:
        AttributeError: There is no such class, or it has no interface.
        TypeError: It cannot be changed.
    """
    owner, name = _resolve(request.name, f"{path}.{INTERFACE}")
    export = getattr(owner, name)
    get = type(export).__get__
    told: set[tuple[str, ...]] = set()  # class and entries: once each

    def interface(self: Any) -> Any:
        cai = get(export, self, type(self))
        if cai is None or not permit.acts:
            return cai
        try:
            return _corrected(request, self, cai, told)
        except ArrayInterfaceError:
            return cai  # whoever reads it will say so
        except ours(Exception) as error:
            what = f"correcting what {name_of(type(self))} exports, for {request.rule.id}"
            request.reporter.broken(what, error)
            return cai

    # What it could do besides stays possible.
    more = [getattr(export, part, None) for part in ("fset", "fdel", "__doc__")]
    return Replaced(owner, name, property(interface, *more))


def _corrected(request: Request, obj: Any, cai: Any, told: set[tuple[str, ...]]) -> Any:
    stream: Any = AUTO
    if isinstance(cai, dict) and cai.get("stream", AUTO) is None:
        producer = producer_of(type(obj))
        if producer is not None and producer.none is not None:
            stream = producer.none
    if stream is AUTO and in_good_form(cai, AS_EXPORTED) is cai:
        return cai
    mended = prepare(obj, cai, AS_EXPORTED, stream, request.reporter)
    if mended is obj:
        return cai
    legal = mended.__cuda_array_interface__
    changes = _changed(cai, legal)
    key = (name_of(type(obj)), *changes)
    if key not in told:
        told.add(key)
        finding = wording.corrected(key[0], tuple(changes.values()), request.rule.id)
        if request.tell(WouldDo(finding), caller_frame()):
            request.reporter.log(f"{request.rule.id}: {finding.what}")
    return legal


# --- what both need ---------------------------------------------------------------------------


def _changed(before: Any, after: Any) -> dict[str, str]:
    """Return what is different in two interfaces: entry -> how, as a clause."""
    found = {}
    for field in {**before, **after}:
        if field not in after:
            found[field] = f"{field} {shown(before[field])} left out"
        elif field not in before:
            found[field] = f"{field} {shown(after[field])} added"
        elif before[field] is not after[field] and shown(before[field]) != shown(after[field]):
            found[field] = f"{field} {shown(before[field])} as {shown(after[field])}"
    return found


def _resolve(module: str, path: str) -> tuple[Any, str]:
    owner, _, name = path.rpartition(".")
    found: Any = sys.modules[module]
    return (attrgetter(owner)(found) if owner else found), name
