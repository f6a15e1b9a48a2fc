"""Who had bound to the names of a library before they were hidden, and stays so."""

from __future__ import annotations

import sys
from typing import NamedTuple

from cudaguard.elf.bound import ThreadLocals, bound_addresses
from cudaguard.elf.image import SYMBOL, Image
from cudaguard.elf.resident import Resident
from cudaguard.files import os
from cudaguard.system.modules import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cudaguard.elf.image import Symbols
    from cudaguard.system.packages import Packages

_GLOBAL = 1  # STB_GLOBAL
_PER_THREAD, _BY_FUNCTION = 6, 10  # STT_TLS, STT_GNU_IFUNC


class Member(NamedTuple):
    """A library to be changed, and which of its names are to be hidden.

    Args:
        image: The library.
        symbols: Its symbol table.
        hidden: Indices into that.
    """

    image: Image
    symbols: Symbols
    hidden: tuple[int, ...]

    def addresses(self, indices: Iterable[int]) -> list[int]:
        """Return the addresses of names, where these are in the table."""
        words = memoryview(self.symbols.table).cast("Q")  # the value is the second of three
        base = self.image.library.base
        return [words[3 * index + 1] + base for index in indices]

    def names(self, indices: Iterable[int]) -> list[bytes]:
        """Return names."""
        starts = memoryview(self.symbols.table).cast("I")
        return [self.symbols.name(starts[index * SYMBOL // 4]) for index in indices]


class User(NamedTuple):
    """A library that is bound to names of the members.

    Args:
        image: The library.
        bound: Addresses of what it refers to; those of this thread where each has its own.
    """

    image: Image
    bound: frozenset[int]


class Hidden:
    """What is hidden: where it lies, who is bound to it, and whose name it is.

    Args:
        members: The libraries that have it.

    Raises:
        OSError: A library cannot be read.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self._spans = [member.image.segments()[0] for member in members]
        with Resident() as resident:
            self._thread_locals = ThreadLocals()
            self._indices = [self._placed(member, resident) for member in members]
        self.addresses = frozenset().union(*self._indices)

    def _placed(self, member: Member, resident: Resident) -> dict[int, int]:
        """Return address -> index of the names of a library."""
        kinds = member.symbols.table[4::SYMBOL]
        found = {}
        for index, address in zip(member.hidden, member.addresses(member.hidden)):
            kind, place = kinds[index] & 15, address
            if kind in (_PER_THREAD, _BY_FUNCTION):
                (name,) = member.names((index,))
                handle = resident.handle(member.image.library.path)
                place = resident.address(handle, name)  # the table does not have it
                if place and kind == _PER_THREAD:
                    module = resident.thread_local_module(handle)
                    offset = address - member.image.library.base
                    self._thread_locals.add(module, offset, place)
            found[place] = index
        found.pop(0, None)
        return found

    def users(self, others: Iterable[Image]) -> list[User]:
        """Return which of these libraries are bound to what is hidden."""
        found = []
        for image in others:
            try:
                bound = bound_addresses(image, self._spans) & self.addresses
                bound |= self._thread_locals.bound(image)
            except OSError:  # unloaded in the meantime, or not readable: nothing to say of it
                continue
            if bound:
                found.append(User(image, bound))
        return found

    def next_owners(self, members: Sequence[Member], users: Sequence[User]) -> list[str]:
        """Return for each member who would get its names and calls into it himself; or nothing.

        A system zlib that was loaded after a bundled one has bound its own calls to that: who got
        it now would work with halves of two versions. Nobody gets the names of a library without
        a soname, such as most extension modules; and those that it has only weakly are copies
        that each brings for itself.
        """
        named = [user for user in users if user.image.soname]
        return [
            next((user.image.library.path for user in named if _has_own(user, member, at)), "")
            for member, at in zip(members, self._indices)
        ]


def _has_own(user: User, member: Member, indices: dict[int, int]) -> bool:
    names = member.names(indices[place] for place in user.bound if place in indices)
    return any(user.image.binding(name) == _GLOBAL for name in names)


def by_module(users: Iterable[User], packages: Packages) -> tuple[tuple[str, int], ...]:
    """Return the modules or packages of users, files where these are unknown, and how often.

    Args:
        users: Who is bound.
        packages: Says which file is whose.
    """
    modules = {
        os.path.realpath(file): name
        for name, module in list(sys.modules.items())
        for file in [getattr(peek(module, "__spec__"), "origin", None)]
        if isinstance(file, str) and ".so" in file
    }
    counts: dict[str, int] = {}
    for image, bound in users:
        path = image.library.path
        package = packages.of(path)
        if package in sys.modules and package != modules.get(path):
            name = package
        else:
            name = modules.get(path) or os.path.basename(path)
        counts[name] = counts.get(name, 0) + len(bound)
    return tuple(counts.items())
