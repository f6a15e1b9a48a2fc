"""What is to happen around the import of one module, from the rules that watch it."""

from __future__ import annotations

import sys

from cudaguard.core.dlopen import RTLD_GLOBAL
from cudaguard.core.initializers import INITIALISERS
from cudaguard.core.loader import Slots
from cudaguard.core.patterns import arguments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Protocol

    from cudaguard.core import repair as repairs
    from cudaguard.core.host import Close
    from cudaguard.core.loads import Loads
    from cudaguard.model import Rule

    class Engine(repairs.Engine, Protocol):
        """What is asked of `cudaguard.core.engine.Engine`."""

        loads: Loads
        plain: Slots

        def arrived(self, spec: ModuleSpec) -> None:
            """Take note of the import of a watched module."""

        def import_ended(self, name: str, kind: str = "imported") -> None:
            """Note in the journal that an import has ended."""

    Before = Callable[[ModuleSpec], None]
    Around = Callable[[ModuleSpec], Close | None]
    After = Callable[[ModuleSpec, ModuleType], None]


def slots_of(engine: Engine, name: str) -> Slots:
    """Return the slots of a module; the engine's `plain` ones where no rule has anything to do."""
    own = tuple(rule for rule in engine.registry.by_module.get(name, ()) if rule.actions)
    before: list[Before] = [engine.arrived, *_prerequisites(engine, name)]
    if own and not RTLD_GLOBAL:
        from cudaguard.features.symbol_scope.repair.scope import tell_unsupported

        before.append(lambda spec: tell_unsupported(engine, spec))
        own = ()
    before += _preparations(engine, own)
    around, after = _around(engine, name, own), _after(engine, name, own)
    if engine.journal.is_written:
        around.append(lambda spec: _note_failure(engine, spec))
        after.append(lambda spec, _: engine.import_ended(spec.name))
    if len(before) == 1 and not after and tuple(around) == engine.plain.around:
        return engine.plain
    return Slots(tuple(before), tuple(around), tuple(after))


def _prerequisites(engine: Engine, name: str) -> list[Before]:
    registry = engine.registry
    if name not in registry.asking:
        return []
    from cudaguard.core.decide import plan
    from cudaguard.system.facts import Facts

    decided = plan(name, registry.by_module, registry.is_users, Facts())
    if not (decided.needs or decided.told or decided.problems):
        return []
    from cudaguard.features.import_order.repair.order import follow

    return [lambda spec: follow(engine, decided, spec)]


def _preparations(engine: Engine, own: tuple[Rule, ...]) -> list[Before]:
    found: list[Before] = []
    preloading = _with(own, "preload", "preload_needs")
    if preloading:
        from cudaguard.features.import_order.repair.preload import preload_for

        found.append(lambda spec: preload_for(engine, preloading, spec))
    by_gpu = _with(own, "nvrtc", "ptxas")
    if by_gpu:
        found.append(lambda spec: _suit_gpus(engine, by_gpu, spec))
    standing_in = _with(own, "env", "substitute")
    if standing_in:
        from cudaguard.features.cuda_init.repair.stand_ins import set_defaults, substitute

        found.append(lambda spec: set_defaults(engine, standing_in, spec))
        found.append(lambda spec: substitute(engine, standing_in, spec))
    return found


def _suit_gpus(engine: Engine, rules: tuple[Rule, ...], spec: ModuleSpec) -> None:
    """Have compilers used that know the GPUs of this machine, if it has any."""
    from cudaguard.system.preload import has_driver

    if has_driver():
        from cudaguard.features.gpu_architectures.repair.nvrtc import preload_nvrtc
        from cudaguard.features.gpu_architectures.repair.ptxas import point_to_ptxas

        preload_nvrtc(engine, _with(rules, "nvrtc"), spec)
        point_to_ptxas(engine, _with(rules, "ptxas"), spec)


def _around(engine: Engine, name: str, own: tuple[Rule, ...]) -> list[Around]:
    found: list[Around] = []
    # Before 3.11 a loader that stays to the end of an import is seen in tracebacks: there only
    # for what is known, or asked, to be looked at.
    is_unknown = not engine.registry.by_module.get(name)
    if sys.version_info >= (3, 11) or name in INITIALISERS or is_unknown:
        found.append(engine.loads.window)
    if any("check" in arguments(rule, "builds") for rule in own):
        from cudaguard.features.builds.repair.builds import ask_nvml

        found.append(lambda spec: ask_nvml(engine, spec))
    demoting = _with(own, "demote")
    if demoting:
        from cudaguard.features.symbol_scope.repair.scope import take_back_after

        def take_back(spec: ModuleSpec) -> Close | None:
            if spec.name != name:  # a native part of the package, which may need the names
                return None

            def close(_: BaseException | None) -> None:
                engine.loads.before_load()  # C code may have loaded something since
                take_back_after(engine, demoting, name)

            return close

        found.insert(0, take_back)
    return found


def _after(engine: Engine, name: str, own: tuple[Rule, ...]) -> list[After]:
    found: list[After] = []
    if name == "ctypes" and RTLD_GLOBAL:
        found += (engine.loads.patch_ctypes, lambda *_: engine.loads.look())
    replacing = _with(own, "normalize", "correct", "graphs", "builds", "fusers")
    if replacing:
        from cudaguard.core.replacements import put_up

        found.append(lambda spec, _: put_up(engine, replacing, spec.name))
    return found


def _with(rules: tuple[Rule, ...], *verbs: str) -> tuple[Rule, ...]:
    return tuple(rule for rule in rules if arguments(rule, *verbs))


def _note_failure(engine: Engine, spec: ModuleSpec) -> Close:
    def close(error: BaseException | None) -> None:
        if error is not None:
            engine.import_ended(spec.name, "failed")

    return close
