"""The memory of this process: an address that was unmapped meanwhile is an error, and no crash."""

from __future__ import annotations

import errno

from cudaguard.files import os, ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

LONGEST_PATH = 1 << 12
_PAGE = 1 << 12


class Memory:
    """The memory of this process, for reading; a context manager that holds a descriptor.

    Raises:
        OSError: by every method, for an address that cannot be read.
    """

    def __init__(self) -> None:
        self._file = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._file)

    def some(self, address: int, length: int) -> bytes:
        """Return up to `length` bytes; fewer where readable memory ends."""
        try:
            return os.pread(self._file, length, address)
        except ours(OverflowError, ValueError, MemoryError):  # no address, or no length
            raise OSError(errno.EFAULT, f"no memory at {address:#x}") from None

    def read(self, address: int, length: int) -> bytes:
        """Return `length` bytes."""
        data = self.some(address, length)
        if len(data) != length:
            raise OSError(errno.EFAULT, f"{length} bytes at {address:#x} cannot be read")
        return data

    def number(self, address: int) -> int:
        """Return the 64-bit word at an address."""
        return int.from_bytes(self.read(address, 8), "little")

    def text(self, address: int, limit: int = LONGEST_PATH) -> bytes:
        """Return the bytes up to the next zero byte, at most `limit`."""
        found = b""
        while len(found) < limit:
            place = address + len(found)
            # Up to the end of the page at most: the next one may not be there.
            part = self.read(place, min(_PAGE - place % _PAGE, 256))
            head, zero, _ = part.partition(b"\0")
            found += head
            if zero:
                break
        return found[:limit]
