"""Arrays that are handed over to libraries: normalized on the way, where a rule says so."""

from __future__ import annotations

from cudaguard.core.caller import caller_frame
from cudaguard.core.loader import ON_PURPOSE
from cudaguard.core.patterns import actions_of
from cudaguard.core.request import Done, Refused, WouldDo
from cudaguard.errors import ArrayInterfaceError
from cudaguard.features.array_interface import messages as wording
from cudaguard.features.array_interface.consumers import ANYONE, AS_EXPORTED, HEEDS
from cudaguard.features.array_interface.interface import AUTO
from cudaguard.features.array_interface.policy.faults import name_of
from cudaguard.features.array_interface.policy.profiles import (
    consumer_of,
    is_part_of,
    producer_of,
)
from cudaguard.features.array_interface.policy.quick import in_good_form
from cudaguard.features.array_interface.repair import entries
from cudaguard.features.array_interface.repair.handover import prepare
from cudaguard.features.array_interface.repair.notes import tell
from cudaguard.features.array_interface.repair.view import View
from cudaguard.files import ours
from cudaguard.system.facts import Facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from cudaguard.core.permit import Permit
    from cudaguard.core.replace import Replaced
    from cudaguard.core.request import Outcome, Request
    from cudaguard.features.array_interface.consumers import Consumer


_MOST = 64  # classes that are remembered for speed: they are kept alive by it


def put_up(request: Request) -> Iterator[Outcome]:
    """Replace the entry points and exports that a rule names, in a module that is imported."""
    if request.name not in request.rule.watch:
        return
    for action in actions_of(request.rule, "normalize_argument", "fix_array_interface"):
        verb, path = next(iter(action.items()))
        is_entry = verb == "normalize_argument"
        place = f"{request.name}.{path}"
        try:
            owner = entries.owner_of(request.name, path, is_entry=is_entry)
            if is_entry:
                put = _put_before(request, path, action["parameter"])
            else:
                put = _put_behind(request, path)
            if request.put(place, owner, lambda _, permit, put=put: put(permit)):  # type: ignore[misc]
                yield Done(place, wording.PUT_UP[verb], verb=verb, stays=False)
        except (AttributeError, ImportError, KeyError, TypeError) as error:
            yield WouldDo(wording.no_such_entry(request.rule.id, place, error))


def _put_before(request: Request, path: str, parameter: str) -> Callable[[Permit], Replaced]:
    """Return what has an entry point of a consumer given what it reads rightly."""
    module = request.name
    consumer = consumer_of(module, Facts().version) or ANYONE.replace(
        name=module, packages=(module,)
    )

    def put(permit: Permit) -> Replaced:
        return entries.precede(module, path, parameter, _Taker(request, consumer, permit).take)

    return put


class _Taker:
    """Prepares what is handed to one entry point.

    Args:
        request: Asks for it, and is told.
        consumer: Whose entry point it is.
        permit: What may be done, at every call.
    """

    def __init__(self, request: Request, consumer: Consumer, permit: Permit) -> None:
        self._permit = permit
        self._request = request
        self._consumer = consumer
        self._always_views = consumer.reads_nothing_else
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
        except Exception:
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
        is_own = any(is_part_of(base, self._consumer) for base in kind.__mro__)
        if len(self._own) < _MOST:
            self._own[kind] = is_own
        return is_own

    def _mended(self, obj: Any, cai: Any, may_repair: bool) -> Any:
        """Return what to hand over in place of an array that is not canonical."""
        request, consumer, kind = self._request, self._consumer, name_of(type(obj))
        if not may_repair:
            consumer = consumer.replace(stream=HEEDS)  # look only, and have nothing wait
        try:
            handed = prepare(obj, cai, consumer, AUTO, lambda note: tell(request.reporter, note))
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
        changes = entries.changed(cai, handed.__cuda_array_interface__)
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


def _put_behind(request: Request, path: str) -> Callable[[Permit], Replaced]:
    """Return what has the interface corrected that a class of a producer exports."""
    told: set[tuple[str, ...]] = set()

    def mend(permit: Permit, obj: Any, cai: Any) -> Any:
        if cai is None or not permit.acts:
            return cai
        try:
            stream: Any = AUTO
            if _says_none(cai):
                producer = producer_of(type(obj))
                if producer is not None and producer.none is not None:
                    stream = producer.none
            if stream is AUTO and in_good_form(cai, AS_EXPORTED) is cai:
                return cai
            mended = prepare(obj, cai, AS_EXPORTED, stream, lambda _: None)
            if mended is obj:
                return cai
            legal = mended.__cuda_array_interface__
            changes = entries.changed(cai, legal)
            key = (name_of(type(obj)), *changes)
            if key not in told:
                told.add(key)
                finding = wording.corrected(key[0], tuple(changes.values()), request.rule.id)
                if request.tell(WouldDo(finding), caller_frame()):
                    request.reporter.log(f"{request.rule.id}: {finding.what}")
        except ArrayInterfaceError:
            return cai  # whoever reads it will say so
        except ours(Exception) as error:
            what = f"correcting what {name_of(type(obj))} exports, for {request.rule.id}"
            request.reporter.broken(what, error)
            return cai
        return legal

    return lambda permit: entries.correct(
        request.name, path, lambda obj, cai: mend(permit, obj, cai)
    )


def _says_none(cai: Any) -> bool:
    return isinstance(cai, dict) and "stream" in cai and cai["stream"] is None
