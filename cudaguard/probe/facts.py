"""The facts that rules are conditioned on, looked up when a rule asks."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class Facts:
    """This process, as far as rules may depend on it. Versions are remembered per object."""

    def __init__(self) -> None:
        self._versions: dict[str, str | None] = {}

    @property
    def python(self) -> str:
        """Version of the interpreter, as in ``3.11.7``."""
        return ".".join(map(str, sys.version_info[:3]))

    @property
    def platform(self) -> str:
        """``sys.platform``."""
        return sys.platform

    @property
    def machine(self) -> str:
        """Hardware name, as in ``x86_64``."""
        return os.uname().machine if hasattr(os, "uname") else ""

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment as Python sees it now."""
        return os.environ

    def version(self, dist: str) -> str | None:
        """Return the version of an installed distribution, None if it is not installed."""
        if dist not in self._versions:
            self._versions[dist] = _installed_version(dist)
        return self._versions[dist]


def _installed_version(dist: str) -> str | None:
    try:
        import importlib_metadata as metadata
    except ImportError:
        from importlib import metadata  # type: ignore[no-redef]  # same functions
    try:
        return metadata.version(dist) or None
    # Not installed, or broken metadata: a folder without a file in it, no version, not UTF-8.
    # Releases of importlib_metadata raise different things, and a rule must be certain to act.
    except Exception:
        return None


def uses_glibc() -> bool:
    """Is the C library of this process glibc?"""
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, ValueError, OSError):
        return False
