"""Libraries of which a process has copies: whether two are a fault, and of which kind."""

from __future__ import annotations

from cudaguard.files import os
from cudaguard.model import Record
from cudaguard.system.runtimes import runtime_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# Kinds of pairs. Of the first two the program should hear.
OLDER, RIVALS = "older", "rivals"
NEWER, SAME, UNKNOWN, APART = "newer", "same", "unknown", "apart"


class Copy(Record):
    """A library of the table that is in this process.

    Args:
        path: Its file, as the loader came to it.
        stem: What `cudaguard.system.runtimes.stem_of` calls it.
        soname: The name by which it is asked for.
        identity: Device and inode of its file, or whatever else tells it from others.
        by: Module that loaded it, empty if that was not seen.
        how: Who loaded it and where, in words that follow its path.
    """

    path: str
    stem: str
    soname: str
    identity: object
    by: str
    how: str


class Stray(Record):
    """A library that gets another file than its own folders lead to.

    Args:
        asking: The library that asks.
        how: Who loaded that, in words that follow its path.
        serving: What it gets, or will get when it asks.
        meant: What it was meant to get.
        is_part: True if it asks for a part of the same library.
    """

    asking: str
    how: str
    serving: Copy
    meant: Copy
    is_part: bool = False


class Want(Record):
    """A release of a library that a package was built for.

    Args:
        package: The module.
        by: The distribution that says so, with its version.
        said: How it says it, as in ``nvidia-cudnn-cu12>=9.8``.
        wheel: The distribution that has the library, empty if it names none.
        least: The earliest release that serves: major and minor.
    """

    package: str
    by: str
    said: str
    wheel: str
    least: tuple[int, ...]


def are_alike(one: str, other: str) -> bool:
    """Return True if two stems are of one library, of which a process should have one."""
    if one == other:
        return True
    first, second = runtime_of(one), runtime_of(other)
    return first.title == second.title == "OpenMP"


def are_parts(one: str, other: str) -> bool:
    """Return True if two stems are of parts of one set, which have to be of one release."""
    part_of = runtime_of(one).part_of
    return bool(part_of) and runtime_of(other).part_of == part_of


def kind_of(
    first: Copy,
    second: Copy,
    versions: tuple[tuple[int, ...], tuple[int, ...]],
    is_same_build: bool,
) -> str:
    """Return what kind of pair two files of one library are.

    Args:
        first: The one that was mapped first.
        second: The other.
        versions: Of both, empty where they are not known.
        is_same_build: True if they are copies of one file.
    """
    rival = runtime_of(first.stem).rival
    if rival and rival == runtime_of(second.stem).rival:
        return RIVALS
    if first.soname != second.soname:
        return APART
    if is_same_build:
        return SAME
    return compared(versions)


def compared(versions: tuple[tuple[int, ...], tuple[int, ...]]) -> str:
    """Return what the first of two versions is, beside the second."""
    first, second = versions
    length = min(len(first), len(second))
    first, second = first[:length], second[:length]
    if not length:
        return UNKNOWN
    return SAME if first == second else OLDER if first < second else NEWER


def is_fault(kind: str, stem: str) -> bool:
    """Return True if such a pair is worth a warning, where names lead to the first one."""
    return kind == RIVALS or (kind == OLDER and not runtime_of(stem).is_checked)


def winners(copies: Iterable[Copy]) -> dict[str, Copy]:
    """Return for each name the copy that serves those who ask by it.

    Args:
        copies: In the order in which they were mapped.
    """
    found: dict[str, Copy] = {}
    for copy in copies:
        found.setdefault(copy.soname, copy)
    return found


def parts_beside(copy: Copy, serving: Iterable[Copy]) -> list[Copy]:
    """Return the other parts of a set that a copy belongs to and works with.

    Args:
        copy: A copy that serves its name.
        serving: All that do.
    """
    part_of = runtime_of(copy.stem).part_of
    if not part_of or not _is_plain(copy):
        return []
    return [
        other
        for other in serving
        if other.stem != copy.stem
        and runtime_of(other.stem).part_of == part_of
        and _release(other) == _release(copy)
        and _is_plain(other)
    ]


def folder_of(copy: Copy) -> str:
    """Return the folder of a copy's file, links resolved."""
    return os.path.dirname(os.path.realpath(copy.path))


def _is_plain(copy: Copy) -> bool:
    # One with a name of its own is asked for by those it was bundled for.
    return copy.soname.startswith(f"{copy.stem}.so")


def _release(copy: Copy) -> str:
    return copy.soname.partition(".so")[2]
