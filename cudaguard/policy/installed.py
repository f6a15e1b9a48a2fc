"""What follows from the metadata of what is installed: files that two claim, requirements unmet."""

from __future__ import annotations

from typing import NamedTuple

from cudaguard.policy.versions import in_range

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Overlap(NamedTuple):
    """Two distributions that were installed over one another.

    Args:
        first: One of them.
        second: The other.
        files: Files that both list, with different contents.
    """

    first: str
    second: str
    files: tuple[str, ...]


class Unmet(NamedTuple):
    """A requirement that what is installed does not meet.

    Args:
        by: The distribution that requires it.
        name: What is required.
        wanted: In which versions, as in ``==2.6.0``; may be empty.
        found: What is installed, None if nothing is.
    """

    by: str
    name: str
    wanted: str
    found: str | None


def overlaps(files: Iterable[tuple[str, str, str]]) -> list[Overlap]:
    """Return who has overwritten whose files.

    Args:
        files: Of all distributions: (path, hash, distribution). One without a hash says nothing,
            and the same content twice does no harm.
    """
    first: dict[str, tuple[str, str]] = {}
    found: dict[tuple[str, str], list[str]] = {}
    for path, digest, dist in files:
        if not digest:
            continue
        before, owner = first.setdefault(path, (digest, dist))
        if owner != dist and before != digest:
            found.setdefault((owner, dist), []).append(path)
    return [Overlap(*pair, tuple(paths)) for pair, paths in found.items()]


def asked_for(requires: Iterable[str]) -> dict[str, str]:
    """Return name -> versions of what a distribution requires on this machine.

    Args:
        requires: Its requirements, as it spells them; what cannot be read is passed over.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    found = {}
    for text in requires:
        try:
            requirement = Requirement(text)
            is_asked = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        except (InvalidRequirement, ValueError):  # also markers that make no sense
            continue
        if is_asked:
            found[requirement.name] = str(requirement.specifier)
    return found


def unmet(
    dist: str, requires: Iterable[str], version_of: Callable[[str], str | None]
) -> list[Unmet]:
    """Return the requirements of a distribution that are not met.

    Args:
        dist: Its name.
        requires: Those that matter, as it spells them.
        version_of: Returns the version of what is installed.
    """
    return [
        Unmet(dist, name, wanted, version)
        for name, wanted in asked_for(requires).items()
        for version in [version_of(name)]
        if version is None or (wanted and not in_range(version, wanted))
    ]
