"""Tells of a cuDNN that is older than the one a package was built for, when that is imported.

XLA finds it out at the first computation on the GPU, and torch maps its own copy at its import: so
it is looked at whenever one of these packages has been imported.
"""

from __future__ import annotations

import sys

from cudaguard.core.caller import caller_frame
from cudaguard.elf.library_version import version_of
from cudaguard.features.duplicate_libraries.messages import wanted as wording
from cudaguard.features.duplicate_libraries.policy.wanted import PACKAGES, STEM, is_older, wanted_by
from cudaguard.system.facts import Facts, requires_of
from cudaguard.system.modules import peek
from cudaguard.system.preload import has_driver
from cudaguard.system.runtimes import runtime_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudaguard.core.dispatch import Dispatch
    from cudaguard.features.duplicate_libraries.policy.duplicates import Copy
    from cudaguard.features.duplicate_libraries.policy.wanted import Want


class Wants:
    """Compares libraries with what packages were built for, and remembers what it has told.

    Args:
        core: Is told.
    """

    def __init__(self, core: Dispatch) -> None:
        self._core = core
        self._told: set[str] = set()  # distributions
        self._wants: dict[str, Want | None] = {}

    def judge(self, copies: Iterable[Copy]) -> None:
        """Compare what serves with what those want that were imported."""
        copies = list(copies)
        here = [name for name in PACKAGES if peek(sys.modules.get(name), "__spec__") is not None]
        facts = Facts()
        for name in here if has_driver() else ():
            if name not in self._wants:
                self._wants[name] = wanted_by(name, facts.version, requires_of)
            want = self._wants[name]
            if want is not None and want.by not in self._told:
                self._judge_one(want, copies, facts)

    def _judge_one(self, want: Want, copies: list[Copy], facts: Facts) -> None:
        soname = f"{STEM}.so.{want.least[0]}"
        serving = next((copy for copy in copies if copy.soname == soname), None)
        if serving is not None:
            release = version_of(serving.path, soname, runtime_of(STEM).wheel)
        else:
            words = ((want.wheel and facts.version(want.wheel)) or "").split(".")
            release = tuple(map(int, words)) if all(map(str.isdecimal, words)) else ()
        if is_older(release, want.least):
            self._told.add(want.by)
            finding = wording.older_than_wanted(want, release, serving)
            self._core.reporter.found(finding, caller_frame())
