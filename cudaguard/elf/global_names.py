"""Owners of names in the global symbol scope, read from memory as the loader would find them.

No ctypes is needed, nothing is loaded or bound by looking, and no lock of the loader is taken. What
each library of the scope has of the names is remembered.

Source: System V ABI, chapter 5; glibc's ``elf/dl-lookup.c``, for ``dlsym`` with the program's
handle; ``link.h``.
"""

from __future__ import annotations

from typing import NamedTuple

from cudaguard.elf.image import Image
from cudaguard.elf.loaded import Library
from cudaguard.elf.reader import UnreadableError
from cudaguard.elf.shared_object import SharedObject
from cudaguard.files import os, ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudaguard.elf.memory import Memory

_ENTRY = 56  # bytes: the public part, the one before, itself, the name space


class Owner(NamedTuple):
    """A library in the global scope.

    Args:
        path: As the loader has it; empty for the program.
        base: What tells it from another one that has come to its place.
        dynamic: As above.
    """

    path: str
    base: int
    dynamic: int

    @property
    def file(self) -> str:
        """The file with links resolved; empty for the program."""
        return os.path.realpath(self.path) if self.path else ""


class GlobalNames:
    """Looks some names up in the global scope.

    Args:
        names: As the linker writes them.
    """

    def __init__(self, names: Sequence[bytes]) -> None:
        self._names = tuple(names)
        # By the words of an entry: a bit for each name that this library has.
        self._has: dict[bytes, tuple[Owner, int]] = {}

    def owners(self, memory: Memory, scope: bytes) -> list[Owner | None]:
        """Return who owns each name, None for one that nobody has.

        Args:
            memory: That of this process.
            scope: The program's search list, as `cudaguard.system.loader_list` has it.

        Raises:
            OSError: An entry cannot be read, as it has been unloaded meanwhile.
        """
        found: list[Owner | None] = [None] * len(self._names)
        left, known = (1 << len(found)) - 1, {}
        for entry in memoryview(scope).cast("Q").tolist():
            words = memory.read(entry, _ENTRY)
            one = known[words] = self._has.get(words) or self._look(memory, words)
            owner, has = one
            has &= left
            left &= ~has
            while has:
                lowest = has & -has
                found[lowest.bit_length() - 1] = owner
                has -= lowest
        self._has = known  # without those that were unloaded
        return found

    def forget(self) -> None:
        """Look at all libraries anew: names of one were hidden."""
        self._has = {}

    def _look(self, memory: Memory, words: bytes) -> tuple[Owner, int]:
        base, text, dynamic = memoryview(words[:24]).cast("Q").tolist()
        owner = Owner(os.fsdecode(memory.text(text)) if text else "", base, dynamic)
        has = 0
        try:
            image = SharedObject(Image(memory, Library(owner.path, base, dynamic)))
            for at, name in enumerate(self._names):
                if image.shows(name):
                    has |= 1 << at
        except ours(UnreadableError):  # the loader finds nothing there either
            pass
        return owner, has
