"""Who is it: the profile of a producer by its class, of a consumer by its name."""

from __future__ import annotations

from cudaguard.features.array_interface.consumers import CONSUMERS
from cudaguard.features.array_interface.producers import PRODUCERS
from cudaguard.system.versions import in_range

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cudaguard.features.array_interface.consumers import Consumer
    from cudaguard.features.array_interface.producers import Producer


def _by_module(profiles: tuple[Any, ...]) -> dict[str, Any]:
    return {module: one for one in profiles for module in (one.name, *one.also)}


_PRODUCERS: dict[str, Producer] = _by_module(PRODUCERS)
_CONSUMERS: dict[str, Consumer] = _by_module(CONSUMERS)
_FIRST_PARTS = frozenset(name.partition(".")[0] for name in _PRODUCERS)


def _find(module: str, profiles: dict[str, Any]) -> Any:
    while module:
        if module in profiles:
            return profiles[module]
        module = module.rpartition(".")[0]
    return None


def producer_of(kind: type) -> Producer | None:
    """Return what is known of a class whose instances have the interface, or of a base of it."""
    for base in kind.__mro__:
        module = base.__module__
        if isinstance(module, str) and module.partition(".")[0] in _FIRST_PARTS:
            found: Producer | None = _find(module, _PRODUCERS)
            if found is not None:
                return found
    return None


def consumer_named(module: str, version_of: Callable[[str], str | None]) -> Consumer | None:
    """Return the profile of the consumer that a module is, or lies in; None for an unknown one.

    Args:
        module: Full name of the module.
        version_of: Tells the version of a distribution, None if it is not installed. It is asked
            only where the version counts.
    """
    found: Consumer | None = _find(module, _CONSUMERS)
    if found is None or not found.since:
        return found
    installed = next((v for v in map(version_of, found.dists) if v is not None), None)
    if installed is not None:
        for versions, changes in found.since:
            if in_range(installed, versions):
                return found.replace(**changes)
    return found


def is_part_of(kind: type, consumer: Consumer) -> bool:
    """Is a class one of the consumer's own?"""
    module = f"{kind.__module__}."
    return any(module.startswith(f"{name}.") for name in (consumer.name, *consumer.also) if name)


def known_consumers() -> tuple[str, ...]:
    """Return the names of all consumers that are known."""
    return tuple(one.name for one in CONSUMERS)
