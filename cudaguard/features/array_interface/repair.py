"""Arrays that are passed to libraries, normalized where a rule says so; exports, corrected.

A function is replaced by a closure, on its module or class: nothing else changes of these, of
instances, and of how they are pickled. All are put back by `undo`, unless somebody has replaced
them since; what somebody else still holds passes on what it is given from then on.
"""

from __future__ import annotations

import functools
import inspect
import sys
from operator import attrgetter
from types import FunctionType

from cudaguard.core.repairs import Done, Refused, WouldDo
from cudaguard.core.rule import actions_of
from cudaguard.errors import ArrayInterfaceError
from cudaguard.features.array_interface.consumers import AS_EXPORTED, consumer_at
from cudaguard.features.array_interface.functions import View, prepare
from cudaguard.features.array_interface.interface import (
    INTERFACE,
    MISSING,
    EntryError,
    as_dictionary,
    canonical,
    is_canonical,
    short_repr,
    type_name,
)
from cudaguard.files import own_errors, program_errors
from cudaguard.hooks.barrier import ask
from cudaguard.hooks.caller import caller_frame
from cudaguard.model import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from cudaguard.core.findings import Finding
    from cudaguard.core.repairs import Outcome, Request
    from cudaguard.core.rule import Permit

_REPLACED = {
    "normalize_argument": "receives normalized arrays",
    "fix_array_interface": "exports a corrected array interface",
}


def replace_attributes(request: Request) -> Iterator[Outcome]:
    """Replace the functions and exports that a rule names, in a module that was imported."""
    if request.name not in request.rule.watch:
        return
    for action in actions_of(request.rule, "normalize_argument", "fix_array_interface"):
        verb, path = next(iter(action.items()))
        place = f"{request.name}.{path}"
        make: Callable[..., Any]
        try:
            if verb == "normalize_argument":
                owner, name = _resolve(request.name, path)
                make = functools.partial(_normalizing, request, owner, name, action["parameter"])
            else:
                owner, name = _resolve(request.name, f"{path}.{INTERFACE}")
                make = functools.partial(_corrected_export, request, getattr(owner, name))
            if request.replacements.put(request, place, owner, name, make):
                yield Done(place, _REPLACED[verb], verb=verb, stays=False)
        except (AttributeError, ImportError, KeyError, TypeError) as error:
            from cudaguard.features.array_interface import findings

            yield WouldDo(findings.no_such_entry(request.rule.id, place, error))


def _resolve(module: str, path: str) -> tuple[Any, str]:
    owner, _, name = path.rpartition(".")
    found: Any = sys.modules[module]
    return (attrgetter(owner)(found) if owner else found), name


# --- what consumers are given -----------------------------------------------------------------


def _normalizing(
    request: Request, owner: Any, name: str, parameter: str, _: object, permit: Permit
) -> Any:
    """Return a function each call of which is given what its consumer reads correctly.

    AttributeError: there is no such function. TypeError: it cannot be replaced.
    """
    original = getattr(owner, name)
    if isinstance(original, type):
        raise TypeError(f"{name} is a class: name its constructor, {name}.__init__")
    if not callable(original):
        raise TypeError(f"{name} is no function, but {short_repr(original)}")
    take = _normalizer(request, permit)
    kind: Any = type(inspect.getattr_static(owner, name))
    is_wrapped = isinstance(owner, type) and kind in (staticmethod, classmethod)
    if is_wrapped:
        original = inspect.getattr_static(owner, name).__func__
    at = int(isinstance(owner, type) and kind is not staticmethod)  # where the array is given

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > at:
            args = (*args[:at], take(args[at]), *args[at + 1 :])
        elif parameter in kwargs:
            kwargs[parameter] = take(kwargs[parameter])
        return original(*args, **kwargs)

    if not isinstance(original, FunctionType) and not isinstance(owner, type):
        return _in_the_guise_of(original, call)
    return kind(call) if is_wrapped else call


def _in_the_guise_of(original: Any, call: Callable[..., Any]) -> Any:
    """Return a function that looks, and is pickled, as one that is not written in Python."""
    from wrapt import FunctionWrapper

    class Guise(FunctionWrapper):  # type: ignore[type-arg]  # generic in its stubs only
        def __reduce_ex__(self, protocol: Any) -> Any:
            return self.__wrapped__.__reduce_ex__(protocol)

    return Guise(original, lambda _, __, args, kwargs: call(*args, **kwargs))


def _normalizer(request: Request, permit: Permit) -> Callable[[Any], Any]:
    """Return a function that returns what to pass on in place of an array: it, or a view of it."""
    consumer, reporter = consumer_at(request.name), request.reporter
    reported: set[tuple[str, ...]] = set()
    what = f"preparing an array for {consumer.name}"

    def take(array: Any) -> Any:
        return ask(reporter, what, prepared, array, default=array)

    def prepared(array: Any) -> Any:
        kind: Any = type(array)
        if not permit.looks or kind is View or consumer.owns(kind):  # it knows its own
            return array
        try:
            cai = array.__cuda_array_interface__
        except program_errors(Exception):
            return array  # there may be another way to read it
        return array if cai is None or is_canonical(cai, consumer) else normalized(array, cai)

    def normalized(array: Any, cai: Any) -> Any:
        is_done, kind = permit.acts, type_name(type(array))
        # Where nothing may be done, nothing waits.
        reader = consumer if is_done else consumer.replace(heeds_stream=True)
        try:
            view = prepare(array, cai, reader, reporter)
        except ArrayInterfaceError as error:
            # The consumer has the last word: it may know more of this class than we do.
            if _is_new((kind, error.field), reported):
                from cudaguard.features.array_interface import findings

                refused = Refused(findings.as_it_is(kind, consumer.name, error), error)
                request.tell(refused, caller_frame())
            else:
                reporter.stop(error)
            return array
        if view is not array:
            changed = _changes(cai, view.__cuda_array_interface__)
            if _is_new((kind, "", *changed), reported):
                from cudaguard.features.array_interface import findings

                words, rule = "; ".join(changed.values()), request.rule.id
                finding = findings.converted(kind, consumer.name, words, rule, is_done=is_done)
                _tell(request, finding)
        return view if is_done else array

    return take


# --- what producers export --------------------------------------------------------------------


def _corrected_export(request: Request, export: Any, _: object, permit: Permit) -> property:
    """Return a property with what a class exports as its array interface, corrected."""
    get = type(export).__get__
    reported: set[tuple[str, ...]] = set()

    def interface(self: Any) -> Any:
        cai, kind = get(export, self, type(self)), type(self)
        if cai is None or not permit.acts:
            return cai
        try:
            if is_canonical(cai, AS_EXPORTED):
                return cai
            legal = canonical(cai, AS_EXPORTED, kind)
            changed = {} if legal is cai else _changes(cai, legal)
            if changed and _is_new((type_name(kind), *changed), reported):
                what = f"the array interface of {type_name(kind)}"
                words = "; ".join(changed.values())
                from cudaguard.features.array_interface import findings

                _tell(request, findings.corrected(what, words, request.rule.id))
        except EntryError:
            return cai  # whoever reads it will say so
        except own_errors(Exception) as error:
            what = f"correcting what {type_name(kind)} exports, for {request.rule.id}"
            request.reporter.broken(what, error)
            return cai
        return legal

    # What it could do besides stays possible.
    more = [getattr(export, part, None) for part in ("fset", "fdel", "__doc__")]
    return property(interface, *more)


# --- what both need ---------------------------------------------------------------------------


def _changes(cai: Any, legal: dict[str, Any]) -> dict[str, str]:
    """Return the entries in which two interfaces differ, each with what was done to it."""
    before = as_dictionary(cai)
    done = {}
    for field in {**before, **legal}:
        old, new = before.get(field, MISSING), legal.get(field, MISSING)
        if new is MISSING:
            done[field] = f"{field} {short_repr(old)} left out"
        elif old is MISSING:
            done[field] = f"{field} {short_repr(new)} added"
        elif old is not new:
            done[field] = f"{field} {short_repr(old)} as {short_repr(new)}"
    return done


def _is_new(key: tuple[str, ...], reported: set[tuple[str, ...]]) -> bool:
    """Return True the first time: the same is said once, as in a loop."""
    is_new = key not in reported
    reported.add(key)
    return is_new


def _tell(request: Request, finding: Finding) -> None:
    if request.tell(WouldDo(finding), caller_frame()) and finding.severity == "info":
        request.reporter.log(f"{request.rule.id}: {finding.what}")
