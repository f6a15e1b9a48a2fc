"""Compares installed versions with a rule's range, by means of ``packaging``."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def in_range(version: str, specifier: str) -> bool:
    """Return True if `version` is inside `specifier`, pre-releases and local versions included.

    A version that PEP 440 does not know is in no range: a rule must be certain to act.
    """
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        parsed = Version(version)
    except InvalidVersion:
        return False
    return SpecifierSet(specifier).contains(parsed, prereleases=True)


def requirement_met(requirement: str, version_of: Callable[[str], str | None]) -> bool:
    """Return True if the required distribution is installed in a matching version."""
    from packaging.requirements import Requirement

    wanted = Requirement(requirement)
    if wanted.marker is not None and not wanted.marker.evaluate():
        return False
    version = version_of(wanted.name)
    return version is not None and (
        not wanted.specifier or in_range(version, str(wanted.specifier))
    )


def required_name(requirement: str) -> str:
    """Return the name of the distribution that a requirement asks for."""
    from packaging.requirements import Requirement

    return Requirement(requirement).name


def clauses(requirement: str) -> int:
    """Return how narrow a requirement is: its number of version clauses, ``==`` counting most."""
    from packaging.requirements import Requirement

    return sum(
        100 if part.operator in ("==", "===") else 1 for part in Requirement(requirement).specifier
    )
