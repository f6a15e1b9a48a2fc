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


_PRODUCERS: dict[str, Producer] = {
    module: one for one in PRODUCERS for module in (one.name, *one.also)
}
_CONSUMERS: dict[str, Consumer] = {module: one for one in CONSUMERS for module in one.packages}
_NAMES: dict[str, Consumer] = {one.name: one for one in CONSUMERS}
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


def consumer_named(name: str, version_of: Callable[[str], str | None]) -> Consumer | None:
    """Return the profile of the consumer that people call so; None for an unknown one.

    Args:
        name: As in ``dali``.
        version_of: As for `consumer_of`.
    """
    return _as_installed(_NAMES.get(name), version_of)


def consumer_of(module: str, version_of: Callable[[str], str | None]) -> Consumer | None:
    """Return the profile of the consumer that a module is, or lies in; None for an unknown one.

    Args:
        module: Full name of the module.
        version_of: Tells the version of a distribution, None if it is not installed. It is asked
            only where the version counts.
    """
    return _as_installed(_find(module, _CONSUMERS), version_of)


def _as_installed(
    found: Consumer | None, version_of: Callable[[str], str | None]
) -> Consumer | None:
    if found is None or not found.since:
        return found
    installed = next((v for v in map(version_of, found.dists) if v is not None), None)
    if installed is not None:
        for versions, changes in found.since:
            if in_range(installed, versions):
                return found.replace(**changes)
    return found


def is_part_of(kind: type, consumer: Consumer) -> bool:
    """Return True if a class is one of the consumer's own."""
    module = f"{kind.__module__}."
    return any(module.startswith(f"{name}.") for name in consumer.packages)


def known_consumers() -> tuple[str, ...]:
    """Return the names of all consumers that are known."""
    return tuple(_NAMES)


def unknown_consumer(asked: object) -> str:
    """Return what is said of a consumer that is not known: the nearest name, and all names."""
    meant: list[str] = []
    if isinstance(asked, str):
        from difflib import get_close_matches

        near = get_close_matches(asked.lower(), _NAMES, 1)
        by_module: Consumer | None = _find(asked, _CONSUMERS)
        meant = near if by_module is None else [by_module.name]
    hint = f"did you mean {meant[0]!r}? Known" if meant else "known"
    return f"consumer {asked!r} is not known; {hint} are {', '.join(_NAMES)}"
