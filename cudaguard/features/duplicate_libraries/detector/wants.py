"""Tells of a cuDNN that is older than the one a package was built for, when that is imported.

XLA finds it out at the first computation on the GPU, and torch maps its own copy at its import: so
it is looked at whenever one of these packages has been imported.
"""

from __future__ import annotations

import sys

from cudaguard.core.caller import caller_frame
from cudaguard.elf.library_version import version_of
from cudaguard.features.duplicate_libraries.messages import wanted as wording
from cudaguard.features.duplicate_libraries.policy.wanted import (
    PACKAGES,
    STEM,
    compiled_with,
    is_older,
    wanted_by,
)
from cudaguard.files import os, ours
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
                told = wanted_by(name, facts.version, requires_of)
                known = _compiled(name, facts)
                is_more = known and (told is None or is_older(told.least, known.least))
                self._wants[name] = known if is_more else told
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
            release = release or _of_conda(soname)
        if is_older(release, want.least):
            self._told.add(want.by)
            finding = wording.older_than_wanted(want, release, serving, conda=_is_condas())
            self._core.reporter.found(finding, caller_frame())


def _compiled(package: str, facts: Facts) -> Want | None:
    """Return what JAX was compiled with, by a function of its own that returns this constant."""
    versions = peek(sys.modules.get("jax._src.lib"), "cuda_versions") if package == "jax" else None
    function = peek(versions, "cudnn_build_version")
    try:
        number = function() if callable(function) else None
    except ours(Exception):
        return None
    by = f"jaxlib {facts.version('jaxlib') or ''}".strip()
    return compiled_with(package, by, number) if isinstance(number, int) else None


def _is_condas() -> bool:
    return os.path.isdir(os.path.join(sys.prefix, "conda-meta"))


def _of_conda(soname: str) -> tuple[int, ...]:
    """Return the release of a library that conda has installed, empty if it has none."""
    file = os.path.join(sys.prefix, "lib", soname)
    return version_of(file, soname, "") if _is_condas() and os.path.exists(file) else ()
