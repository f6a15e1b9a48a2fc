"""Tells of a cuDNN that is older than the one a package was built for, when that is imported.

XLA finds it out at the first computation on the GPU, and torch maps its own copy at its import: so
it is looked at whenever one of these packages has been imported.

Sources: the metadata of jax-cuda12-plugin, tensorflow, torch, onnxruntime-gpu and paddlepaddle-gpu;
XLA's ``cuda_dnn.cc``, which wants the same major version of cuDNN and the same minor one or later.
"""

from __future__ import annotations

import re
import sys

from cudaguard.elf.library_facts import version_of
from cudaguard.features.duplicate_libraries.findings import Want, older_than_wanted
from cudaguard.files import os, own_errors
from cudaguard.hooks.caller import caller_frame
from cudaguard.system.facts import Facts, requires_of
from cudaguard.system.modules import peek
from cudaguard.system.preload import has_driver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudaguard.core.dispatch import Dispatch
    from cudaguard.features.duplicate_libraries.copies import Copy

    Release = tuple[int, ...]

# Module -> the distributions whose metadata tell what it was built for, the first that is there.
PACKAGES = {
    "jax": ("jax-cuda13-plugin", "jax-cuda12-plugin", "jaxlib"),
    "onnxruntime": ("onnxruntime-gpu",),
    "paddle": ("paddlepaddle-gpu",),
    "tensorflow": ("tensorflow",),
    "torch": ("torch",),
}
_WHEEL = re.compile(r"nvidia[-_.]cudnn[-_.]cu\d+", re.IGNORECASE)
_OF_NINE = 90000  # cuDNN's number for 9.0.0; 9.13.1 is 91301, and 8.9.7 is 8907


def _wanted_by(package: str, facts: Facts) -> Want | None:
    """Return what one of `PACKAGES` was built for, None if its metadata do not tell."""
    for dist in PACKAGES[package]:
        version = facts.version(dist)
        required = [one for one in map(cudnn_of, requires_of(dist)) if one] if version else []
        # An extra that is for another CUDA counts as little as what is not installed.
        for said, wheel, least in sorted(required, key=lambda one: facts.version(one[1]) is None):
            return Want(package, f"{dist} {version}", said, wheel, least)
    return None


def cudnn_of(requirement: str) -> tuple[str, str, Release] | None:
    """Return (the requirement, the wheel, the earliest release) of one on cuDNN."""
    if not _WHEEL.match(requirement):
        return None
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        one = Requirement(requirement)
    except InvalidRequirement:
        return None
    least = [
        tuple(int(word) for word in specifier.version.split(".")[:2] if word.isdecimal())
        for specifier in one.specifier
        if specifier.operator in ("==", ">=", "~=")
    ]
    return (f"{one.name}{one.specifier}", one.name, max(least)) if least else None


def is_older(release: Release, least: Release) -> bool:
    """Return True if a release is known, and earlier than what is wanted of its major version."""
    known = min(len(release), len(least))
    return known > 1 and release[0] == least[0] and release[:known] < least[:known]


class Wants:
    """Compares libraries with what packages were built for, and remembers what it has reported."""

    def __init__(self, core: Dispatch) -> None:
        self._core = core
        self._reported: set[str] = set()  # distributions
        self._wants: dict[str, Want | None] = {}

    def judge(self, copies: Iterable[Copy]) -> None:
        """Compare the cuDNN that is first with what those want that were imported."""
        copies = list(copies)
        here = [name for name in PACKAGES if peek(sys.modules.get(name), "__spec__") is not None]
        facts = Facts()
        for name in here if has_driver() else ():
            if name not in self._wants:
                required = _wanted_by(name, facts)
                self._wants[name] = _compiled(facts, required) if name == "jax" else required
            want = self._wants[name]
            if want is None or want.by in self._reported:
                continue
            soname = f"libcudnn.so.{want.least[0]}"
            loaded = next((copy for copy in copies if copy.soname == soname), None)
            is_condas = os.path.isdir(os.path.join(sys.prefix, "conda-meta"))
            words = (facts.version(want.wheel) or "").split(".") if want.wheel else []
            release = tuple(map(int, words)) if all(map(str.isdecimal, words)) else ()
            if loaded is not None:
                release = loaded.release
            elif not release and is_condas:
                release = version_of(os.path.join(sys.prefix, "lib", soname), soname)
            if is_older(release, want.least):
                self._reported.add(want.by)
                finding = older_than_wanted(want, release, loaded, conda=is_condas)
                self._core.reporter.found(finding, caller_frame())


def _compiled(facts: Facts, required: Want | None) -> Want | None:
    """Return what JAX was compiled with, by its own function, or what metadata ask for if more."""
    function = peek(peek(sys.modules.get("jax._src.lib"), "cuda_versions"), "cudnn_build_version")
    try:
        number = function() if callable(function) else None
    except own_errors(Exception):
        number = None
    if not isinstance(number, int):
        return required
    least = divmod(number // 100, 100 if number >= _OF_NINE else 10)
    if required is not None and not is_older(required.least, least):
        return required
    by, said = f"jaxlib {facts.version('jaxlib') or ''}".strip(), f"cudnn>={least[0]}.{least[1]}"
    return Want("jax", by, said, "", least)
