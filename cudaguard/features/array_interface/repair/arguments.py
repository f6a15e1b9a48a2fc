"""Arrays that are handed over to libraries: normalised on the way, where a rule says so."""

from __future__ import annotations

from cudaguard.core.caller import caller_frame
from cudaguard.core.loader import ON_PURPOSE
from cudaguard.core.repair import REPAIRING
from cudaguard.core.replace import Switch
from cudaguard.errors import ArrayInterfaceError, ArrayInterfaceWarning
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
from cudaguard.system.facts import Facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cudaguard.core.repair import Engine
    from cudaguard.core.replace import Replaced
    from cudaguard.features.array_interface.consumers import Consumer
    from cudaguard.model import Rule


_MOST = 64  # classes that are remembered for speed: they are kept alive by it


def put_before(engine: Engine, rule: Rule, module: str, argument: str) -> Replaced:
    """Have an entry point of a consumer given what it reads rightly.

    Raises:
        AttributeError: There is no such entry point.
        TypeError: It cannot be replaced.
    """
    path, parameter = entries.split(argument)
    consumer = consumer_of(module, Facts().version) or ANYONE.replace(
        name=module, packages=(module,)
    )
    taker = _Taker(engine, rule, consumer)
    return entries.precede(module, path, parameter, taker.take, taker.switch)


class _Taker:
    """Prepares what is handed to one entry point.

    Args:
        engine: Knows the mode, and is told.
        rule: Asks for it.
        consumer: Whose entry point it is.
    """

    def __init__(self, engine: Engine, rule: Rule, consumer: Consumer) -> None:
        self.switch = Switch()
        self._engine = engine
        self._rule = rule
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
        if is_own or not self.switch.is_on or self._engine.mode == "off":
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
        may_repair = self._engine.mode in REPAIRING
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
        except Exception as error:
            self._engine.broken(f"preparing an array for {self._consumer.name}", error)
            return obj
        return handed

    def _look_at_class(self, kind: type) -> bool:
        is_own = any(is_part_of(base, self._consumer) for base in kind.__mro__)
        if len(self._own) < _MOST:
            self._own[kind] = is_own
        return is_own

    def _mended(self, obj: Any, cai: Any, may_repair: bool) -> Any:
        """Return what to hand over in place of an array that is not canonical."""
        engine, consumer, kind = self._engine, self._consumer, name_of(type(obj))
        if not may_repair:
            consumer = consumer.replace(stream=HEEDS)  # look only, and have nothing wait
        try:
            handed = prepare(obj, cai, consumer, AUTO, lambda note: tell(engine, note))
        except ArrayInterfaceError as error:
            # The consumer has the last word: it may know more of this class than we do.
            if self._is_new(kind, error.field, ""):
                finding = wording.handed_over_as_it_is(kind, consumer.name, error.field, str(error))
                engine.tell(finding, ArrayInterfaceWarning, frame=caller_frame())
            if engine.mode == "strict":
                raise
            return obj
        if handed is obj:
            return View(obj, cai) if self._always_views and may_repair else obj
        changes = entries.changed(cai, handed.__cuda_array_interface__)
        if self._is_new(kind, *changes):
            how = tuple(changes.values())
            finding = wording.mended(kind, consumer.name, how, self._rule.id, may_repair)
            is_new = engine.tell(finding, ArrayInterfaceWarning, frame=caller_frame())
            if is_new and may_repair:
                engine.log(f"{self._rule.id}: {finding.what}")
        return handed if may_repair else obj

    def _is_new(self, *key: str) -> bool:
        """Has nothing been told of that class and those entries? A loop says the same each time."""
        if key in self._told:
            return False
        self._told.add(key)
        return True


def put_behind(engine: Engine, rule: Rule, module: str, path: str) -> Replaced:
    """Have what a class of a producer exports corrected.

    Raises:
        AttributeError: There is no such class, or it exports nothing.
        TypeError: It cannot be changed.
    """
    switch = Switch()
    told: set[tuple[str, ...]] = set()

    def mend(obj: Any, cai: Any) -> Any:
        if cai is None or not switch.is_on or engine.mode not in REPAIRING:
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
                finding = wording.corrected(key[0], tuple(changes.values()), rule.id)
                if engine.tell(finding, ArrayInterfaceWarning, frame=caller_frame()):
                    engine.log(f"{rule.id}: {finding.what}")
        except ArrayInterfaceError:
            return cai  # whoever reads it will say so
        except Exception as error:
            engine.broken(f"correcting what {name_of(type(obj))} exports, for {rule.id}", error)
            return cai
        return legal

    return entries.correct(module, path, mend, switch)


def _says_none(cai: Any) -> bool:
    return isinstance(cai, dict) and "stream" in cai and cai["stream"] is None
