"""CG902: would the extensions of what is installed load?"""

from __future__ import annotations

import os
import sys

from cudaguard.doctor.site import Skipped
from cudaguard.policy.extensions import ACCELERATED, TORCH_LIBRARIES, built_for_python
from cudaguard.repairs.extension import check_extension
from cudaguard.report.doctor import installed as wording
from cudaguard.rules.patterns import arguments, matches
from cudaguard.rules.runtimes import runtime_of, stem_of
from cudaguard.wiring import active_rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudaguard.doctor.site import Result, Site
    from cudaguard.extensions import ExtensionCheck
    from cudaguard.probe.distributions import SharedFile


def check(site: Site) -> Result:
    """Look at those that link torch or CUDA, each as if what it needs first were imported."""
    files = [file for file in site.shared_files if is_extension(file.path) and _is_for_cuda(file)]
    if not files:
        raise Skipped("nothing that is installed links torch or CUDA")
    findings = []
    load_demangler()
    for file in files:
        dist, version = file.dist, site.version(file.dist) or ""
        if dist == "torch":  # what all others build on is not taken for granted
            found = check_extension(file.path)
            if found.ok is False:
                findings.append(wording.torch_would_not_load(found, version))
            continue
        found, _ = checked(file.path)
        if found.ok is False:
            findings.append(wording.would_not_load(found, dist, version))
    return findings, f"{len(files)} extensions that link torch or CUDA"


def _is_for_cuda(file: SharedFile) -> bool:
    return any(
        name in (*TORCH_LIBRARIES, *ACCELERATED)
        or name.startswith("libcuda.so")
        or (stem_of(name) and runtime_of(stem_of(name)).wheel)
        for name in file.needed
    )


def is_extension(file: str) -> bool:
    """Is that a file which an import of this Python may load, judged by its name?"""
    name = os.path.basename(file)
    other = built_for_python(name)
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return name.endswith(".so") and not name.startswith("lib") and other in ("", ours)


def checked(file: str) -> tuple[ExtensionCheck, tuple[str, ...]]:
    """Return the check of a file, and the modules that it took for imported."""
    given: tuple[str, ...] = ()
    while True:
        check = check_extension(file, given=given)
        more = [module for module in _providers(check.missing_libraries) if module not in given]
        if not more:
            return check, given
        given += (more[0],)


def _providers(libraries: Iterable[str]) -> list[str]:
    """Return the modules that bring some of these libraries, by the rules in force."""
    return [
        rule.watch[0]
        for rule in active_rules()
        for patterns in [arguments(rule, "provides")]
        if any(matches(library, patterns) for library in libraries)
    ]


def load_demangler() -> bool:
    """Load the C++ runtime, which has the function that makes names readable.

    This process is ours; in a program's own nothing is loaded for it.
    """
    import ctypes

    try:
        ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return False
    return True
