"""The dynamic loader's list: what it has mapped since the last look, and what of that is global.

Asked before and after each load, so the answer "no" has to be cheap: what the loader counts has not
changed. What it adds stands at the end of its list; what becomes global, at the end of the
program's search list. Both are remembered as they were and compared. A library may be unloaded at
any time, and its entry be freed; so they are read by the kernel, where an address that is gone is
an error and not a crash, and nothing is held that would keep a library from being unloaded.

Source: ``link.h``; ``proc(5)``.
"""

from __future__ import annotations

import sys
from _thread import RLock

from cudaguard.elf.process import ENTRY, Library, Memory, entries, first_entry, rendezvous
from cudaguard.files import os, own_errors
from cudaguard.model import TYPE_CHECKING
from cudaguard.system import peek

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    Kept = TypeVar("Kept")
    # What is compared: addresses and lengths.
    Parts = list[tuple[int, int]]

_NEXT = 24  # where in an entry the address of the next one lies
_LONGEST_WAIT = 1  # seconds; what is not looked at now is seen by the next look
_WORDS = 16  # bytes: address and length of the search list


class Turn:
    """Lets one look at a time happen: also in a fork, and where a load comes from within a look."""

    def __init__(self) -> None:
        self._lock, self._pid, self._is_taken = RLock(), os.getpid(), False

    def take(self, read: Callable[[], Kept]) -> Kept | None:
        """Return what a look returns; None, without it, if another one does not end in time."""
        if self._pid != os.getpid():  # forked, and another thread may have held the lock
            self._lock, self._pid, self._is_taken = RLock(), os.getpid(), False
        lock = self._lock
        try:
            # Had at once where this thread holds it: what a signal handler or a `__del__` loads
            # while we look must not wait for ourselves.
            if not lock.acquire(timeout=_LONGEST_WAIT) or self._is_taken:
                return None
            self._is_taken = True
            try:
                return read()
            finally:
                self._is_taken = False
        finally:
            if lock._is_owned():  # type: ignore[attr-defined]  # as threading.Condition asks
                lock.release()


class LoaderList:
    """The dynamic loader's list of libraries, read from memory."""

    def __init__(self) -> None:
        self.news = 0  # counts the looks that have found something changed
        # The program's search list, the address of an entry per 8 bytes; empty if it is unreadable.
        self.scope = b""
        self._first = self._scope_at = 0
        self._parts: Parts = []
        self._seen = b""  # what stood there
        # What the loader counts (see `cudaguard.kernel`), and what it was at the last look; empty
        # where that is not known.
        self.counters: Callable[[], tuple[int, ...]] = tuple
        self._counted: tuple[int, ...] = ()
        self._libraries: list[Library] = []
        self._turn = Turn()
        self._begins_at = (0, 0)

    def begin_at(self, last: int = 0, members: int = 0) -> None:
        """Show the list as it was when an entry (by address) was the last, until called again.

        The search list had so many `members` then.
        """
        self._begins_at = last, members

    def changes(self) -> int:
        """Look whether anything has changed; return `news`.

        While another thread looks for longer than a moment, nothing has: the next look sees it.
        """
        self._turn.take(self._check)
        return self.news

    def _check(self) -> None:
        now = self.counters()
        if self._seen and (self._begins_at[0] or (now and now == self._counted)):
            return
        self._counted = () if self._begins_at[0] else now
        seen = self._peek() if self._seen else b""
        if not seen or seen != self._seen:
            self.news += 1
            self._read(seen)

    def libraries(self) -> list[Library]:
        """Return the libraries, their paths as the loader's: the list of the last call, extended.

        A new list where the loader's has been changed elsewhere than at its end, or cannot be read
        just now; then it is empty, and the next one is whole.
        """
        self.changes()
        return self._libraries

    def _read(self, seen: bytes) -> None:
        is_longer = bool(seen) and seen[:_NEXT] == self._seen[:_NEXT]
        try:
            with Memory() as memory:
                if not self._first:
                    self._find(memory)
                start = int.from_bytes(seen[_NEXT:ENTRY], "little") if is_longer else self._first
                found = self._cut(list(entries(memory, start)))
                last = found[-1][0] if found else self._parts[0][0]
                self._remember(memory, last, seen[ENTRY:])
        except own_errors(OSError):  # changed while it was read
            self._seen, self._libraries, self.scope = b"", [], b""
            return
        libraries = [library for _, library in found]
        if is_longer:
            self._libraries += libraries
        else:
            self._libraries = libraries

    def _cut(self, found: list[tuple[int, Library]]) -> list[tuple[int, Library]]:
        """Return the entries up to that where to begin."""
        last, _ = self._begins_at
        places = (place for place, (entry, _) in enumerate(found, 1) if entry == last)
        return found[: next(places, len(found))] if last else found

    def _find(self, memory: Memory) -> None:
        try:
            self._first, self._scope_at = rendezvous(memory)
        except own_errors(OSError):
            if peek(sys.modules.get("ctypes"), "pythonapi") is None:
                raise
            self._first = first_entry()

    def _remember(self, memory: Memory, last: int, rest: bytes) -> None:
        # Without a next one: another thread may have mapped something meanwhile.
        parts, scope = [(last, ENTRY)], b""
        seen = memory.read(last, _NEXT) + bytes(ENTRY - _NEXT)
        if rest and rest == self._seen[ENTRY:]:  # the search list is as it was
            parts, seen, scope = [*parts, *self._parts[1:]], seen + rest, self.scope
        elif self._scope_at:
            words = memory.read(self._scope_at, _WORDS)
            count, (_, members) = int.from_bytes(words[8:12], "little"), self._begins_at
            if members and members < count:
                count, words = members, words[:8] + members.to_bytes(4, "little") + words[12:]
            place = int.from_bytes(words[:8], "little")
            scope = memory.read(place, 8 * count)
            parts += [(self._scope_at, _WORDS), (place, len(scope))]
            seen += words + scope
        self._parts, self._seen, self.scope = parts, seen, scope

    def _peek(self) -> bytes:
        try:
            with Memory() as memory:
                return b"".join([memory.read(*part) for part in self._parts])
        except own_errors(OSError):  # an entry is gone
            return b""


class LoaderNews:
    """Libraries that were mapped since the last call of one reader.

    Those who ask share the list: it is read once, whoever comes first.
    """

    everything = LoaderList()

    def __init__(self) -> None:
        self._seen: list[Library] = []
        self._count = 0
        self.is_whole = False  # was the last answer all that is mapped?

    def names(self) -> list[str]:
        """Return the names of the libraries that were mapped since the last call."""
        return [library.path for library in self.libraries()]

    def libraries(self) -> list[Library]:
        """Return the libraries that were mapped since the last call, their paths as the loader's.

        Where the list has been changed elsewhere than at its end, it is all of them again.
        """
        libraries = self.everything.libraries()
        self.is_whole = libraries is not self._seen
        if self.is_whole:
            self._seen, self._count = libraries, 0
        new = libraries[self._count :]
        self._count += len(new)
        return new
