"""Which copy of a library that all of a process share is to be loaded first. Pure functions."""

from __future__ import annotations

from cudaguard.model import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# Library -> its family, which must come from one folder: the newest copy serves all clients.
NEWEST_SERVES_ALL = {"msvcp140.dll": ("msvcp140", "concrt140", "vcruntime140_threads")}


class Copy(NamedTuple):
    """A copy of the library.

    Args:
        version: Its file version; empty if it has none.
        path: The file.
        owner: Whose it is: a distribution, or what its folder is to Windows.
    """

    version: tuple[int, ...]
    path: str
    owner: str


def newest(copies: Iterable[Copy]) -> Copy | None:
    """Return the newest of some copies; of equal ones the first."""
    return max(copies, key=lambda copy: copy.version, default=None)
