"""CG902: installed extensions that would not load."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from functools import cache, partial

from cudaguard.core.checks import Check, Skipped
from cudaguard.core.known_errors import NUMBERS
from cudaguard.core.lifecycle import activation
from cudaguard.core.rule import values_of
from cudaguard.elf.forecast import refuses_executable_stacks
from cudaguard.features.extensions import findings as wording
from cudaguard.files import matches
from cudaguard.model import TYPE_CHECKING
from cudaguard.system.extensions import (
    OF_TORCH,
    built_for_python,
    check_one_of_many,
    is_for_numpy_1,
    numpy_2,
)
from cudaguard.system.facts import required_name
from cudaguard.system.name_owners import FFMPEG, cuda_of, debian_package_of
from cudaguard.system.packages import key_of, shared_files
from cudaguard.system.runtimes import runtime_of, stem_of
from cudaguard.system.torch_build import PYTHON_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cudaguard.core.checks import Result
    from cudaguard.elf.forecast import ExtensionCheck, Settled
    from cudaguard.system.packages import SharedFile, Site


# What comes with the driver, and is nowhere without one.
_DRIVER = {"libcuda.so.1", "libnvidia-ml.so.1"}
# What is certain of a library, which may get its symbols from others once they are loaded.
CERTAIN_OF_LIBRARIES = (
    "older-library", "symbol-version", "truncated", "wrong-machine", "executable-stack",
)  # fmt: skip
_BESIDE_TORCH = "beside-torch"
_LIBRARY = re.compile(r"lib.+\.so(?:\.\d+)*|.+\.dll", re.IGNORECASE)


def check_extensions(site: Site) -> Result:
    """Look at those that link torch or CUDA, each as if what it needs first were imported."""
    files, libraries = _looked_at(site)
    foreign = _for_other_pythons(site.shared_files)
    if not (files or libraries or foreign):
        raise Skipped("nothing that is installed links torch or CUDA")
    for_torch = {file.path for file in files if _is_for_torch(file)}
    in_wheels = {file.soname for file in site.shared_files if file.dist.startswith("nvidia-")}
    load_demangler()
    settled: dict[object, Settled] = {}
    # By distribution, cause, and the package of the system that has what is missing.
    failed: dict[tuple[str, str, str], list[ExtensionCheck]] = {}
    opened: dict[tuple[str, str, str], list[ExtensionCheck]] = {}  # libraries
    enough: set[str] = set()  # families of files of which one loads
    # Some distributions have one library for each CUDA, and open the one that fits: they are named
    # for another CUDA only if they have nothing else.
    fitting: set[tuple[str, str]] = set()
    # What all others build on is not taken for granted.
    torchs = (check_one_of_many(f.path, (), settled) for f in files if f.dist == "torch")
    version = site.version("torch") or ""
    findings = [wording.torch_would_not_load(one, version) for one in torchs if one.ok is False]
    for file in (one for one in (*files, *libraries) if one.dist != "torch"):
        is_known = is_extension(file.path) or _is_for_torch(file)
        own = partial(brought, site, file.dist) if is_known else dict
        check, _ = checked(file.path, settled, own)
        cause, missing = check.cause or "", check.missing_libraries
        key = file.dist, cause, _of_system(check)
        enough |= {_family(file)} if check.ok else set()
        if not is_extension(file.path):
            lacks_all = not any(map(cuda_of, in_wheels.intersection(missing)))
            is_for_other = check.ok is False and cause == "cuda-major" and lacks_all
            is_certain = check.ok is False and cause in CERTAIN_OF_LIBRARIES
            if is_for_other or is_certain or key[2] == FFMPEG:
                opened.setdefault(key, []).append(check)
            if not is_for_other and any(map(cuda_of, file.needed)):
                fitting.add((file.dist, "cuda-major"))
            continue
        if check.ok and version and not _is_for_torch(file):
            # Would it load once torch is imported, whose libraries are found first then?
            check = check_one_of_many(file.path, ("torch",), settled)
            key, missing = (file.dist, _BESIDE_TORCH, ""), check.missing_libraries
            if check.cause not in ("older-library", "symbol-version"):
                continue
        # Packages such as cupy open these by their paths, in NVIDIA's wheels, before they are
        # asked for; with torch it is torch that does, and only for its own.
        there = _DRIVER if _is_for_torch(file) else _DRIVER | in_wheels
        if check.ok is False and not (missing and there.issuperset(missing)):
            failed.setdefault(key, []).append(check)
    fitting |= {(key[0], "library-missing") for key in opened if key[1] != "library-missing"}
    for key, found in opened.items():
        failed.setdefault(key, []).extend(found if key[:2] not in fitting else ())
    for (dist, cause, package), found in failed.items():
        is_served = package == FFMPEG and not enough.isdisjoint(map(_family, found))
        if not found or is_served or dist in foreign:
            continue
        may_lack = cause == "library-missing" and OF_TORCH.isdisjoint(found[0].missing_libraries)
        is_certain, is_beside = found[0].path in for_torch and not may_lack, cause == _BESIDE_TORCH
        told = {"is_certain": is_certain, "beside_torch": is_beside}
        findings.append(wording.would_not_load(found, dist, site.version(dist) or "", **told))
    findings += (wording.for_other_python(f, d, site.version(d) or "") for d, f in foreign.items())
    seen = f"extensions that link torch or CUDA: {len(files)}"
    return findings, seen + (f", libraries: {len(libraries)}" if libraries else "")


def _looked_at(site: Site) -> tuple[list[SharedFile], list[SharedFile]]:
    """Return the extensions and the libraries that are checked."""
    refuses = refuses_executable_stacks()
    stacks = {file.path for file in site.shared_files if refuses and file.wants_stack}
    numpy = numpy_2()
    files = [
        file
        for file in site.shared_files
        if is_extension(file.path)
        and (_is_for_cuda(file) or file.path in stacks or (numpy and is_for_numpy_1(file.path)))
    ]
    return files, [file for file in site.shared_files if _may_be_opened(file, stacks)]


def _family(file: SharedFile | ExtensionCheck) -> str:
    """Return a path without numbers: a package tries one for each FFmpeg, and needs one."""
    return NUMBERS.sub("", file.path)


def _of_system(check: ExtensionCheck) -> str:
    missing = check.missing_libraries if check.cause == "library-missing" else ()
    return next(filter(None, map(debian_package_of, missing)), "")


def _for_other_pythons(files: Iterable[SharedFile]) -> dict[str, list[str]]:
    """Return the extensions of distributions of which none is for this Python."""
    others: dict[str, list[str]] = {}
    fitting = set()
    for file in files:
        if is_extension(file.path):
            fitting.add(file.dist)
        elif built_for_python(os.path.basename(file.path)) and _is_for_cuda(file):
            others.setdefault(file.dist, []).append(file.path)
    return {dist: paths for dist, paths in others.items() if dist not in fitting}


def _may_be_opened(file: SharedFile, stacks: set[str]) -> bool:
    """Return True for a library for CUDA that its package may open itself, as by ctypes."""
    is_of_others = file.dist.startswith("nvidia-") or file.dist == "torch"
    is_meant = file.path in stacks or (not is_of_others and _is_for_cuda(file))
    return is_library(file.path) and is_meant


def _is_for_torch(file: SharedFile) -> bool:
    return not OF_TORCH.isdisjoint(file.needed)


def _is_for_cuda(file: SharedFile) -> bool:
    return _is_for_torch(file) or any(map(_is_of_cuda, file.needed))


@cache
def _is_of_cuda(name: str) -> bool:
    return name in _DRIVER or bool(stem_of(name) and runtime_of(stem_of(name)).wheel)


def is_extension(file: str) -> bool:
    """Return True if an import of this Python may load a file, judged by its name."""
    name = os.path.basename(file)
    other = built_for_python(name)
    is_so = name.endswith(".so") and not name.startswith("lib") and other in ("", PYTHON_VERSION)
    return is_so or name.endswith(".pyd")


def is_library(file: str) -> bool:
    """Return True for a shared library that is no extension module, judged by its name."""
    return _LIBRARY.fullmatch(os.path.basename(file)) is not None


@cache
def brought(site: Site, dist: str) -> dict[str, str]:
    """Return the libraries of a distribution and of what it requires, by soname.

    Packages such as pylibraft open those that the loader does not find. torch opens its own only.
    """
    known = {one.key: one for one in site.installed.found}
    keys = {key_of(dist): None}
    waiting = [*keys]
    for key in waiting:  # which grows
        required = known[key].required() if key in known else ()
        names = {key_of(required_name(said)) for said in required} - {"torch"}
        waiting += [name for name in names if name not in keys]
        keys.update(dict.fromkeys(names))
    files = shared_files(known[key] for key in keys if key in known)
    return {file.soname: file.path for file in reversed(files)}


def checked(
    file: str, settled: dict[object, Settled] | None, own: Callable[[], Mapping[str, str]] = dict
) -> tuple[ExtensionCheck, tuple[str, ...]]:
    """Return the check of a file, and the modules that it took for imported.

    What is known of the libraries of files before is in `settled`, see `forecast`. Its package
    may have opened those of its `own` libraries that the loader does not find, see `brought`.
    """
    given: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()
    while True:
        check = check_one_of_many(file, given, settled, opened)
        missing = check.missing_libraries
        libraries = own() if missing else {}
        beside = {libraries[name] for name in missing if name in libraries}.difference(opened)
        modules = (  # of rules which know what brings a library
            rule.watch[0]
            for rule in activation.active_rules()
            if any(matches(name, values_of(rule, "provide_libraries")) for name in missing)
        )
        module = next((name for name in modules if name not in given), "")
        if not module and not beside:
            return check, given
        opened, given = (*opened, *sorted(beside)), (*given, *filter(None, [module]))


def load_demangler() -> None:
    """Load the C++ runtime, which has the function that makes names readable.

    This process is ours; in a program's own nothing is loaded for it.
    """
    import ctypes

    with suppress(OSError):
        ctypes.CDLL("libstdc++.so.6")


EXTENSIONS = Check(
    wording.UNLOADABLE,
    "Extensions that link torch or CUDA are compared with the torch that is installed: the "
    "libraries they need, and each symbol, from the files, as the dynamic loader would. So are "
    "those of any package that were built for NumPy 1, or that glibc refuses for their stack.",
    check_extensions,
)
