"""The hash tables by which the dynamic loader finds a name in a shared object.

Source: System V ABI, chapter 5; the GNU hash table as the GNU linker writes it.
"""

from __future__ import annotations

from cudaguard.elf.reader import STEP, Budget, UnreadableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    # Given an address and a length: that many bytes, or an error.
    Read = Callable[[int, int], bytes]

_MOST_HASHES = 1 << 21
_LONGEST_CHAIN = 1 << 12
_COMMON_CHAIN = 64  # entries that are read at once, at most


class GnuTable:
    """The newer kind: about the definitions only, which stand last among the symbols.

    Attributes:
        first: Index of the first symbol that the table is about.
        defines_anything: True if there is any.
    """

    def __init__(self, read: Read, table: int, budget: Budget) -> None:
        self._budget = budget
        count, self.first, blooms, self._shift = memoryview(read(table, 16)).cast("I")
        if max(count, blooms, self.first) > _MOST_HASHES:
            raise UnreadableError("its hash table makes no sense")
        self._read = read
        self._blooms = memoryview(read(table + 16, 8 * blooms)).cast("Q")
        self._buckets = memoryview(read(table + 16 + 8 * blooms, 4 * count)).cast("I")
        self._chains = table + 16 + 8 * blooms + 4 * count
        self.defines_anything = any(self._buckets)

    def candidates(self, name: bytes) -> list[int]:
        """Return the indices of the symbols whose names have the hash of this one."""
        blooms, buckets = self._blooms, self._buckets
        if not blooms or not buckets:
            return []
        code = gnu_hash(name)
        mask = 1 << (code % 64) | 1 << ((code >> (self._shift % 32)) % 64)
        if blooms[code // 64 % len(blooms)] & mask != mask:
            return []
        bucket, found = code % len(buckets), []
        index = buckets[bucket]
        if index < self.first:
            return []
        # Linkers write the chains in the order of the buckets: the next one tells how long this is.
        following = buckets[bucket + 1] if bucket + 1 < len(buckets) else 0
        count = following - index if index < following <= index + _COMMON_CHAIN else 1
        at, end = index - self.first, index - self.first + _LONGEST_CHAIN
        while at < end:
            self._budget.spend(STEP * count)
            for other in memoryview(self._read(self._chains + 4 * at, 4 * count)).cast("I"):
                if other | 1 == code | 1:
                    found.append(self.first + at)
                if other & 1:
                    return found
                at += 1
            count = 1
        raise UnreadableError("its hash table has no end")


class OldTable:
    """The older kind: about all symbols.

    Attributes:
        symbols: How many symbols there are.
    """

    def __init__(self, read: Read, table: int, budget: Budget) -> None:
        self._budget = budget
        count, self.symbols = memoryview(read(table, 8)).cast("I")
        if max(count, self.symbols) > _MOST_HASHES:
            raise UnreadableError("its hash table makes no sense")
        words = memoryview(read(table + 8, 4 * (count + self.symbols))).cast("I")
        self._buckets, self._chains = words[:count], words[count:]

    def candidates(self, name: bytes) -> list[int]:
        """Return the indices of the symbols whose names have the hash of this one, and others."""
        found: list[int] = []
        index = self._buckets[old_hash(name) % len(self._buckets)] if self._buckets else 0
        while index:
            if index >= self.symbols or len(found) > _LONGEST_CHAIN:
                raise UnreadableError("its hash table has no end")
            self._budget.spend(STEP)
            found.append(index)
            index = self._chains[index]
        return found


def old_hash(name: bytes) -> int:
    """Return the hash by which a name stands in the older kind of table, and among versions."""
    code = 0
    for sign in name:
        code = (code << 4) + sign
        upper = code & 0xF0000000
        code = (code ^ (upper >> 24)) & ~upper & 0xFFFFFFFF
    return code


_hashes: dict[bytes, int] = {}


def gnu_hash(name: bytes) -> int:
    """Return the hash by which a name stands in the table."""
    code = _hashes.get(name)
    if code is None:
        code = 5381
        for sign in name:
            code = (code * 33 + sign) & 0xFFFFFFFF
        if len(_hashes) > 1 << 14:
            _hashes.clear()
        _hashes[name] = code
    return code
