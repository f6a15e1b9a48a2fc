"""Libraries of which a process may have copies."""

from __future__ import annotations

from cudaguard.files import os
from cudaguard.model import Record
from cudaguard.system.runtimes import runtime_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudaguard.system.runtimes import Runtime

LIBRARY_PATH = "LD_LIBRARY_PATH"


class Copy(Record):
    """A library of `cudaguard.system.runtimes` that is in this process.

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

    @property
    def runtime(self) -> Runtime:
        """What is known of the library."""
        return runtime_of(self.stem)

    @property
    def folder(self) -> str:
        """The folder of its file, links resolved."""
        return os.path.dirname(os.path.realpath(self.path))

    @property
    def release(self) -> tuple[int, ...]:
        """Its release as far as names of files tell, empty if they do not."""
        from cudaguard.elf.library_facts import version_of

        return version_of(self.path, self.soname, self.runtime.wheel)

    @property
    def release_text(self) -> str:
        """The same as text."""
        return ".".join(map(str, self.release))

    def is_like(self, other: Copy) -> bool:
        """Return True if both are of one library, of which a process should have one."""
        rival = self.runtime.rival
        return self.stem == other.stem or bool(rival and rival == other.runtime.rival)

    def is_part_with(self, other: Copy) -> bool:
        """Return True if both are parts of one set, which have to be of one release."""
        part_of = self.runtime.part_of
        return bool(part_of) and other.runtime.part_of == part_of


class Stray(Record):
    """A library that gets another file than its own folders lead to.

    Args:
        asking: The library that asks.
        how: Who loaded that, in words that follow its path.
        used: What it gets, or will get when it asks.
        meant: What it was meant to get.
        is_part: True if it asks for a part of the same library.
    """

    asking: str
    how: str
    used: Copy
    meant: Copy
    is_part: bool = False


def first_of_each(copies: Iterable[Copy]) -> dict[str, Copy]:
    """Return for each name the copy that all get who ask by it: the one that was mapped first."""
    found: dict[str, Copy] = {}
    for copy in copies:
        found.setdefault(copy.soname, copy)
    return found
