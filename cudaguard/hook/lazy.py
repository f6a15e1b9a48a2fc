"""Explicit lazy imports (PEP 810, Python 3.15): keep watched modules eager.

A lazily imported library is mapped at its first use, in whatever order that is. The
interpreter has room for one filter, so the one that is there is asked as well.

Source: https://peps.python.org/pep-0810/
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class LazyFilter:
    """Answers "not lazily" for modules whose top-level package is in `roots`."""

    def __init__(self) -> None:
        self.roots: frozenset[str] = frozenset()
        self._previous: Callable[..., bool] | None = None
        self.is_up = False

    def put_up(self) -> None:
        """Set the filter, where the interpreter has one."""
        setter = getattr(sys, "set_lazy_imports_filter", None)
        if setter is not None and not self.is_up:
            self._previous = sys.get_lazy_imports_filter()  # type: ignore[attr-defined]  # 3.15
            setter(self)
            self.is_up = True

    def take_down(self) -> None:
        """Put the previous filter back, unless someone else has set one since."""
        if self.is_up:
            self.is_up = False
            if sys.get_lazy_imports_filter() is self:  # type: ignore[attr-defined]  # 3.15
                sys.set_lazy_imports_filter(self._previous)  # type: ignore[attr-defined]  # 3.15

    def __call__(self, importer: str, name: str, fromlist: Any = None) -> bool:
        """Return whether this import may be lazy (called at the import statement)."""
        if self.is_up and name.partition(".")[0] in self.roots:
            return False
        previous = self._previous
        return True if previous is None else previous(importer, name, fromlist)


def everything_is_lazy() -> bool:
    """Has the user switched lazy imports on for all modules?"""
    getter = getattr(sys, "get_lazy_imports", None)
    return getter is not None and getter() == "all"
