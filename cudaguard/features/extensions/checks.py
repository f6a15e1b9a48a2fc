"""CG902: installed extensions that would not load."""

from __future__ import annotations

import os
import re
import sys

from cudaguard.core.checks import Check
from cudaguard.core.patterns import matches, values_of
from cudaguard.core.status import active_rules
from cudaguard.features.extensions import findings as wording
from cudaguard.system.extensions import (
    OF_TORCH,
    built_for_python,
    check_extension,
    check_one_of_many,
    cuda_major,
)
from cudaguard.system.packages import Skipped
from cudaguard.system.runtimes import runtime_of, stem_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudaguard.elf.forecast import ExtensionCheck, Settled
    from cudaguard.system.packages import Result, SharedFile, Site


# What comes with the driver, and is nowhere without one.
DRIVER = {"libcuda.so.1", "libnvidia-ml.so.1"}
# What is certain of a library, which may get its symbols from others once they are loaded.
CERTAIN_OF_LIBRARIES = ("older-library", "symbol-version", "truncated", "wrong-machine")
_BESIDE_TORCH = "beside-torch"
_LIBRARY = re.compile(r"lib.+\.so(?:\.\d+)*")


def check(site: Site) -> Result:
    """Look at those that link torch or CUDA, each as if what it needs first were imported."""
    files = [file for file in site.shared_files if is_extension(file.path) and _is_for_cuda(file)]
    libraries = [file for file in site.shared_files if _may_be_opened(file)]
    if not files and not libraries and not _for_other_pythons(site.shared_files):
        raise Skipped("nothing that is installed links torch or CUDA")
    findings = []
    in_wheels = {file.soname for file in site.shared_files if file.dist.startswith("nvidia-")}
    failed: dict[tuple[str, str], list[ExtensionCheck]] = {}  # by distribution and cause
    without_driver: dict[str, None] = {}
    of_driver: set[str] = set()
    load_demangler()
    settled: dict[object, Settled] = {}
    for file in files:
        if file.dist == "torch":  # what all others build on is not taken for granted
            check = check_extension(file.path)
            if check.ok is False:
                findings.append(wording.torch_would_not_load(check, site.version("torch") or ""))
            continue
        check, _ = checked(file.path, settled)
        missing = set(check.missing_libraries)
        if check.ok is not False:
            beside = _beside_torch(file, settled) if check.ok and site.version("torch") else None
            if beside is not None:
                failed.setdefault((file.dist, _BESIDE_TORCH), []).append(beside)
            continue
        if missing and missing <= DRIVER:
            without_driver[file.dist] = None
            of_driver |= missing
        # Packages such as cupy open these by their paths, in NVIDIA's wheels, before they are
        # asked for; with torch it is torch that does, and only for its own.
        elif not missing or missing - in_wheels or _is_for_torch(file):
            failed.setdefault((file.dist, str(check.cause)), []).append(check)
    for_one_cuda = _Majors(in_wheels)
    for file in libraries:
        check, _ = checked(file.path, settled)
        if check.ok is False and check.cause in CERTAIN_OF_LIBRARIES:
            failed.setdefault((file.dist, str(check.cause)), []).append(check)
        for_one_cuda.add(file, check)
    failed.update(for_one_cuda.failed())
    for (dist, cause), found in failed.items():
        is_certain = any(_is_for_torch(file) for file in files if file.path == found[0].path)
        finding = wording.would_not_load(
            found, dist, site.version(dist) or "", is_certain=is_certain
        )
        if cause == _BESIDE_TORCH:
            finding = wording.beside_torch(finding, found[0].path)
        findings.append(finding)
    if without_driver:
        findings.append(wording.need_the_driver(list(without_driver), sorted(of_driver)))
    for dist, foreign in _for_other_pythons(site.shared_files).items():
        findings.append(wording.for_other_python(foreign, dist, site.version(dist) or ""))
    seen = f"extensions that link torch or CUDA: {len(files)}"
    return findings, seen + (f", libraries: {len(libraries)}" if libraries else "")


class _Majors:
    """Distributions of which no library is for the CUDA that torch is for.

    Some have one library for each CUDA, and open the one that fits.

    Args:
        in_wheels: The names of the libraries that NVIDIA's wheels have here.
    """

    def __init__(self, in_wheels: set[str]) -> None:
        self._in_wheels = in_wheels
        self._foreign: dict[str, list[ExtensionCheck]] = {}
        self._fitting: set[str] = set()

    def add(self, file: SharedFile, check: ExtensionCheck) -> None:
        """Take note of a library that a package may open itself."""
        lacks_all = not self._in_wheels.intersection(check.missing_libraries)
        if check.ok is False and check.cause == "cuda-major" and lacks_all:
            self._foreign.setdefault(file.dist, []).append(check)
        elif any(map(cuda_major, file.needed)):
            self._fitting.add(file.dist)

    def failed(self) -> dict[tuple[str, str], list[ExtensionCheck]]:
        """Return the checks of those that have nothing else, by distribution and cause."""
        found = self._foreign.items()
        return {(dist, "cuda-major"): one for dist, one in found if dist not in self._fitting}


def _beside_torch(file: SharedFile, settled: dict[object, Settled]) -> ExtensionCheck | None:
    """Return the check of an extension that would load, and not once torch is imported.

    The libraries that torch has loaded by then serve those that the extension finds elsewhere.
    """
    if _is_for_torch(file) or not _is_for_cuda(file):
        return None
    check = check_one_of_many(file.path, ("torch",), settled)
    is_certain = check.ok is False and check.cause in ("older-library", "symbol-version")
    return check if is_certain else None


def _for_other_pythons(files: Iterable[SharedFile]) -> dict[str, list[str]]:
    """Return the extensions of distributions of which none is for this Python."""
    foreign: dict[str, list[str]] = {}
    fitting = set()
    for file in files:
        if is_extension(file.path):
            fitting.add(file.dist)
        elif built_for_python(os.path.basename(file.path)) and _is_for_cuda(file):
            foreign.setdefault(file.dist, []).append(file.path)
    return {dist: paths for dist, paths in foreign.items() if dist not in fitting}


def _may_be_opened(file: SharedFile) -> bool:
    """Return True for a library for CUDA that its package may open itself, as by ctypes."""
    is_of_others = file.dist.startswith("nvidia-") or file.dist == "torch"
    return is_library(file.path) and not is_of_others and _is_for_cuda(file)


def _is_for_torch(file: SharedFile) -> bool:
    return not OF_TORCH.isdisjoint(file.needed)


def _is_for_cuda(file: SharedFile) -> bool:
    return _is_for_torch(file) or any(
        name in DRIVER or (stem_of(name) and runtime_of(stem_of(name)).wheel)
        for name in file.needed
    )


def is_extension(file: str) -> bool:
    """Return True if an import of this Python may load a file, judged by its name."""
    name = os.path.basename(file)
    other = built_for_python(name)
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return name.endswith(".so") and not name.startswith("lib") and other in ("", ours)


def is_library(file: str) -> bool:
    """Return True for a shared library that is no extension module, judged by its name."""
    return _LIBRARY.fullmatch(os.path.basename(file)) is not None


def checked(
    file: str, settled: dict[object, Settled], given: tuple[str, ...] = ()
) -> tuple[ExtensionCheck, tuple[str, ...]]:
    """Return the check of a file, and the modules that it took for imported.

    Args:
        file: The extension.
        settled: What is known of the libraries of those before, empty at first; is added to.
        given: Modules that are taken for imported in any case.
    """
    while True:
        check = check_one_of_many(file, given, settled)
        more = [module for module in _providers(check.missing_libraries) if module not in given]
        if not more:
            return check, given
        given += (more[0],)


def _providers(libraries: Iterable[str]) -> list[str]:
    """Return the modules that bring some of these libraries, by the rules in force."""
    return [
        rule.watch[0]
        for rule in active_rules()
        for patterns in [values_of(rule, "provide_libraries")]
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


EXTENSIONS = Check(
    "CG902",
    "compiled extensions",
    "Extensions that link torch or CUDA are compared with the torch that is installed: the "
    "libraries they need, and each symbol, from the files, as the dynamic loader would.",
    check,
)
