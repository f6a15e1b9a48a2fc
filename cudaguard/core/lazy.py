"""Explicit lazy imports (PEP 810, Python 3.15): keep watched modules eager inside `guard()` blocks.

A lazy import comes to the finder at its first use, as any other import does at its statement: under
`install()` it is guarded then, with what must come before it. Behind a `guard()` block it is not,
so that watched modules are imported inside. The interpreter has room for one filter, so the one
that is there is asked as well.

Source: https://peps.python.org/pep-0810/
"""

from __future__ import annotations

import sys

from cudaguard.files import own_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class LazyFilter:
    """Answers "not lazily" for installed modules whose top-level package is in `roots`.

    One that is not installed is left to fail where the program uses it.
    """

    def __init__(self) -> None:
        self.roots: frozenset[str] = frozenset()
        self._previous: Callable[..., bool] | None = None
        self._ours: Callable[..., bool] | None = None

    @property
    def is_up(self) -> bool:
        """True if the filter is in force."""
        return self._ours is not None

    def install(self) -> None:
        """Set the filter, where the interpreter has one."""
        setter = getattr(sys, "set_lazy_imports_filter", None)
        if setter is None or self.is_up:
            return
        previous = self._previous = sys.get_lazy_imports_filter()  # type: ignore[attr-defined]  # 3.15

        # A new one each time: an older one may be called by whoever has set a filter since.
        def may_be_lazy(importer: str | None, name: str, fromlist: Any = None) -> bool:
            try:
                if self._ours is may_be_lazy and name.partition(".")[0] in self.roots:
                    from cudaguard.core.prerequisites import is_installed

                    if is_installed(name):
                        return False
            except own_errors(Exception):  # it may be lazy then, as without us
                pass
            return True if previous is None else previous(importer, name, fromlist)

        self._ours = may_be_lazy
        setter(may_be_lazy)

    def uninstall(self) -> None:
        """Put the previous filter back, unless someone else has set one since."""
        if self._ours is not None and sys.get_lazy_imports_filter() is self._ours:  # type: ignore[attr-defined]  # 3.15
            sys.set_lazy_imports_filter(self._previous)  # type: ignore[attr-defined]  # 3.15
        self._ours = self._previous = None
