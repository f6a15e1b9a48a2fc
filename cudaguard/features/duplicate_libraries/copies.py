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
    """A library of `cudaguard.system.runtimes` that is in this process."""

    path: str  # its file, as the loader came to it
    stem: str  # what `cudaguard.system.runtimes.stem_of` calls it
    soname: str  # the name by which it is asked for
    identity: object  # device and inode of its file, or whatever else tells it from others
    by: str  # module that loaded it, empty if that was not seen
    how: str  # who loaded it and where, in words that follow its path

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
    """A library that gets another file than its own folders lead to."""

    asking: str  # the library that asks
    how: str  # who loaded that, in words that follow its path
    used: Copy  # what it gets, or will get when it asks
    meant: Copy  # what it was meant to get
    is_part: bool = False  # True if it asks for a part of the same library


def first_of_each(copies: Iterable[Copy]) -> dict[str, Copy]:
    """Return for each name the copy that all get who ask by it: the one that was mapped first."""
    found: dict[str, Copy] = {}
    for copy in copies:
        found.setdefault(copy.soname, copy)
    return found
