"""Arrays that are handed over to libraries: normalised on the way, where a rule says so."""

from __future__ import annotations

from functools import lru_cache

from cudaguard.actions.arrays import entries
from cudaguard.actions.arrays.handover import prepare
from cudaguard.actions.arrays.view import View
from cudaguard.array_interface import AUTO
from cudaguard.errors import ArrayInterfaceError, ArrayInterfaceWarning
from cudaguard.hook.caller import caller_frame
from cudaguard.hook.loader import ON_PURPOSE
from cudaguard.policy.array_faults import name_of
from cudaguard.policy.array_profiles import consumer_named, is_part_of, producer_of
from cudaguard.policy.array_quick import in_good_form
from cudaguard.probe.facts import Facts
from cudaguard.repairs import REPAIRING
from cudaguard.repairs.arrays import tell
from cudaguard.report import arrays as wording
from cudaguard.rules.consumers import ANYONE, AS_EXPORTED, HEEDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cudaguard.actions.arrays.entries import Replaced
    from cudaguard.model import Rule
    from cudaguard.repairs import Engine
    from cudaguard.rules.consumers import Consumer


def put_before(engine: Engine, rule: Rule, module: str, argument: str) -> Replaced:
    """Have an entry point of a consumer given what it reads rightly.

    Raises:
        AttributeError: There is no such entry point.
        TypeError: It cannot be replaced.
    """
    path, parameter = entries.split(argument)
    consumer = consumer_named(module, Facts().version) or ANYONE.replace(name=module)
    return entries.precede(module, path, parameter, _taker(engine, rule, consumer))


def _taker(engine: Engine, rule: Rule, consumer: Consumer) -> Callable[[Any], Any]:
    always_views = consumer.reads_nothing_else
    told: set[type] = set()

    @lru_cache(maxsize=64)
    def is_own(kind: type) -> bool:
        return kind is View or is_part_of(kind, consumer)

    def take(obj: Any) -> Any:
        kind: type = type(obj)
        if is_own(kind) or engine.mode == "off":  # it knows what to do with its own
            return obj
        try:
            cai = obj.__cuda_array_interface__
        except AttributeError:
            return obj
        except Exception:
            if always_views:  # it would say that there is none, and hide the error
                raise
            return obj  # there may be another way to read it
        try:
            good = in_good_form(cai, consumer)
            if good is cai:  # or there is none
                return View(obj, cai) if cai and always_views else obj
            if good is not None and kind in told and engine.mode in REPAIRING:
                return View(obj, good)
            told.add(kind)
            return _mended(engine, rule, obj, cai, consumer)
        except ON_PURPOSE:
            raise
        except Exception as error:
            engine.broken(f"preparing an array for {consumer.name}", error)
            return obj

    return take


def _mended(engine: Engine, rule: Rule, obj: Any, cai: Any, consumer: Consumer) -> Any:
    """Return what to hand over in place of an array that is not canonical for its consumer."""
    may_repair = engine.mode in REPAIRING
    if not may_repair:
        consumer = consumer.replace(stream=HEEDS)  # look only, and have nothing wait
    kind = name_of(type(obj))
    try:
        handed = prepare(obj, cai, consumer, AUTO, lambda note: tell(engine, note))
    except ArrayInterfaceError as error:
        if engine.mode == "strict":
            raise
        # The consumer has the last word: it may know more of this class than we do.
        finding = wording.handed_over_as_it_is(kind, consumer.name, error.field, str(error))
        engine.tell(finding, ArrayInterfaceWarning, frame=caller_frame())
        return obj
    if handed is obj:
        return obj
    fields = entries.changed(cai, handed.__cuda_array_interface__)
    finding = wording.mended(kind, consumer.name, fields, rule.id, may_repair)
    if engine.tell(finding, ArrayInterfaceWarning, frame=caller_frame()) and may_repair:
        engine.log(f"{rule.id}: {finding.what}")
    return handed if may_repair else obj


def put_behind(engine: Engine, rule: Rule, module: str, path: str) -> Replaced:
    """Have what a class of a producer exports corrected.

    Raises:
        AttributeError: There is no such class, or it exports nothing.
        TypeError: It cannot be changed.
    """

    def mend(obj: Any, cai: Any) -> Any:
        if engine.mode not in REPAIRING:
            return cai
        try:
            stream: Any = AUTO
            if cai.get("stream") is None:
                producer = producer_of(type(obj))
                stream = AUTO if producer is None or producer.none is None else producer.none
            if stream is AUTO and in_good_form(cai, AS_EXPORTED) is cai:
                return cai
            mended = prepare(obj, cai, AS_EXPORTED, stream, lambda _: None)
        except ArrayInterfaceError:
            return cai  # whoever reads it will say so
        except Exception as error:
            engine.broken(f"correcting what {name_of(type(obj))} exports, for {rule.id}", error)
            return cai
        return mended.__cuda_array_interface__

    return entries.correct(module, path, mend)
