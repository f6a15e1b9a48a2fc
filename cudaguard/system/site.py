"""What several checks look at, each thing looked at once."""

from __future__ import annotations

import os
from functools import cached_property

from cudaguard.system.distributions import (
    Distribution,
    Installed,
    SharedFile,
    Unreadable,
    installed,
    key_of,
)
from cudaguard.system.distributions import shared_files as _shared_files
from cudaguard.system.facts import Facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.model import Finding

    # What a check has found, and in a few words what it has looked at.
    Result = tuple[list[Finding], str]


class Skipped(Exception):  # noqa: N818  # not an error
    """Raised by a check that has nothing to look at; the text says why."""


class Site:
    """This environment.

    Args:
        limit: Seconds for one child.
    """

    def __init__(self, limit: float = 60.0) -> None:
        self.limit = limit
        self.environ = dict(os.environ)
        self.facts = Facts()

    @cached_property
    def _installed(self) -> Installed:
        return installed()

    @property
    def distributions(self) -> list[Distribution]:
        """What is installed."""
        return self._installed.found

    @property
    def hidden(self) -> list[Distribution]:
        """What another distribution of its name hides, in an earlier folder of the path."""
        return self._installed.hidden

    @property
    def unreadable(self) -> list[Unreadable]:
        """What of it cannot be read."""
        return self._installed.unreadable

    @cached_property
    def versions(self) -> dict[str, str]:
        """The versions of what is installed, by the form of names that are compared."""
        return {dist.key: dist.version for dist in self.distributions}

    def version(self, name: str) -> str | None:
        """Return the version of a distribution, None if it is not installed."""
        return self.versions.get(key_of(name))

    @cached_property
    def shared_files(self) -> list[SharedFile]:
        """The shared objects of all that is installed."""
        return _shared_files(self.distributions)
