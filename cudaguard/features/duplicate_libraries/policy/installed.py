"""What follows from the metadata of what is installed: files that two claim, requirements unmet."""

from __future__ import annotations

from typing import NamedTuple

from cudaguard.system.versions import in_range

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

# The hash of an empty file in RECORD. Nobody misses one: a package without ``__init__.py`` works.
EMPTY = "sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"


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


def sharers(files: Iterable[tuple[str, str, str]], gone: Container[str]) -> list[str]:
    """Return the distributions that lose files when others are uninstalled.

    An installer deletes whatever the distribution lists, even where another one has the same
    file with the same content.

    Args:
        files: As of `overlaps`.
        gone: The distributions to be uninstalled.
    """
    listed = [one for one in files if one[1] and one[1] != EMPTY]
    doomed = {path for path, _, dist in listed if dist in gone}
    return list(dict.fromkeys(d for path, _, d in listed if path in doomed and d not in gone))


class Asked(NamedTuple):
    """A requirement that counts on this machine.

    Args:
        name: What is required.
        wanted: In which versions, as in ``==2.6.0``; may be empty.
        extras: Which of its extras.
    """

    name: str
    wanted: str
    extras: tuple[str, ...]


def asked_for(requires: Iterable[str], extras: Iterable[str] = ()) -> list[Asked]:
    """Return what a distribution requires on this machine.

    Args:
        requires: Its requirements, as it spells them; what cannot be read is passed over.
        extras: Which of its extras somebody wants.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    found = []
    for text in requires:
        try:
            one = Requirement(text)
            is_asked = one.marker is None or any(
                one.marker.evaluate({"extra": extra}) for extra in ("", *extras)
            )
        except (InvalidRequirement, ValueError):  # also markers that make no sense
            continue
        if is_asked:
            found.append(Asked(one.name, str(one.specifier), tuple(sorted(one.extras))))
    return found


def unmet(
    dist: str, asked: Iterable[Asked], version_of: Callable[[str], str | None]
) -> list[Unmet]:
    """Return the requirements of a distribution that are not met.

    Args:
        dist: Its name.
        asked: Those that matter.
        version_of: Returns the version of what is installed.
    """
    return [
        Unmet(dist, one.name, one.wanted, version)
        for one in asked
        for version in [version_of(one.name)]
        if version is None or (one.wanted and not in_range(version, one.wanted))
    ]
