"""Arrays that are handed over to libraries: normalised on the way, where a rule says so."""

from __future__ import annotations

from functools import lru_cache

from cudaguard.actions.arrays import entries
from cudaguard.actions.arrays.handover import prepare
from cudaguard.actions.arrays.view import View
from cudaguard.array_interface import AUTO
from cudaguard.errors import ArrayInterfaceError, ArrayInterfaceWarning
from cudaguard.hook.caller import caller_frame
from cudaguard.hook.loader import ON_PURPOSE, is_imported, is_under_way
from cudaguard.policy.array_faults import name_of
from cudaguard.policy.array_profiles import consumer_named, is_part_of, producer_of
from cudaguard.policy.array_quick import in_good_form
from cudaguard.policy.decide import applies
from cudaguard.probe.facts import Facts
from cudaguard.repairs import REPAIRING
from cudaguard.repairs.arrays import tell
from cudaguard.report import arrays as wording
from cudaguard.rules.consumers import ANYONE, AS_EXPORTED, HEEDS
from cudaguard.rules.patterns import arguments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cudaguard.actions.arrays.entries import Replaced
    from cudaguard.model import Rule
    from cudaguard.repairs import Engine
    from cudaguard.rules.consumers import Consumer


def put_up_where_imported(engine: Engine) -> None:
    """Put up what rules want for modules that are there already: it is not too late for that."""
    for rule in engine.registry.replacing:
        for module in rule.watch:
            if is_imported(module) and not is_under_way(module):
                put_up(engine, (rule,), module)


def put_up(engine: Engine, rules: tuple[Rule, ...], module: str) -> None:
    """Replace the entry points and the exports that rules name in a module.

    Args:
        engine: Knows the mode, and is told.
        rules: Rules with the actions ``normalize`` or ``correct``.
        module: The module, imported.
    """
    for rule in rules:
        if rule.grade == "warn" or module not in rule.watch or not applies(rule, Facts()):
            continue
        for verb, put in (("normalize", _put_before), ("correct", _put_behind)):
            for argument in arguments(rule, verb):
                place = f"{module}.{entries.split(argument)[0]}"
                if place in engine.replaced:
                    continue
                try:
                    engine.replaced[place] = put(engine, rule, module, argument)
                except (AttributeError, KeyError, TypeError) as error:
                    finding = wording.no_such_entry(rule.id, place, error)
                    engine.tell(finding, ArrayInterfaceWarning, frame=caller_frame())
                else:
                    engine.journal.note("repair", f"{rule.id} {verb} {place}")


def _put_before(engine: Engine, rule: Rule, module: str, argument: str) -> Replaced:
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


def _put_behind(engine: Engine, rule: Rule, module: str, path: str) -> Replaced:
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
