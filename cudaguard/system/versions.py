"""Compares installed versions with a rule's range, by means of ``packaging``."""

from __future__ import annotations

from cudaguard.files import theirs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from packaging.requirements import Requirement


def in_range(version: str, specifier: str) -> bool:
    """Return True if `version` is inside `specifier`; pre-releases and local versions count.

    A version that PEP 440 does not know is in no range: a rule must be certain to act.
    """
    versions = _part_of_packaging("version")
    try:
        parsed = versions.Version(version)
    except versions.InvalidVersion:
        return False
    specifiers = _part_of_packaging("specifiers").SpecifierSet(specifier)
    return bool(specifiers.contains(parsed, prereleases=True))


def requirement_met(requirement: str, version_of: Callable[[str], str | None]) -> bool:
    """Return True if the required distribution is installed in a matching version."""
    ends = (n for n, sign in enumerate(requirement) if not (sign.isalnum() or sign in "._-"))
    version = version_of(requirement[: next(ends, len(requirement))])
    if version is None:  # the most frequent answer, without the parser
        return False
    wanted = _requirement(requirement)
    if wanted.marker is not None and not wanted.marker.evaluate():
        return False
    return not wanted.specifier or in_range(version, str(wanted.specifier))


def required_name(requirement: str) -> str:
    """Return the name of the distribution that a requirement asks for."""
    return _requirement(requirement).name


def clauses(requirement: str) -> int:
    """Return how narrow a requirement is: its number of version clauses, ``==`` counting most."""
    return sum(
        100 if part.operator in ("==", "===") else 1 for part in _requirement(requirement).specifier
    )


def _requirement(text: str) -> Requirement:
    made: Requirement = _part_of_packaging("requirements").Requirement(text)
    return made


def _part_of_packaging(name: str) -> ModuleType:
    """Return a module of ``packaging``.

    Raises:
        ImportError: It is not there, or broken: our failure, whatever it is that it raises.
    """
    try:
        return __import__(f"packaging.{name}", fromlist=("__name__",))  # the part, not the whole
    except theirs(Exception) as error:
        why = f"packaging cannot be imported: {type(error).__name__}: {error}"
    raise ImportError(why, name="packaging")
