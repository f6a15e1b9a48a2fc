"""CG903, CG905: libraries and distributions that are installed twice."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from contextlib import suppress
from functools import lru_cache
from itertools import chain

from cudaguard.core.checks import Check, Skipped
from cudaguard.elf.process import identity
from cudaguard.elf.reader import ElfFile
from cudaguard.elf.search_path import SearchPath, read_place
from cudaguard.elf.symbols import SharedObject
from cudaguard.features.duplicate_libraries import findings as wording
from cudaguard.features.duplicate_libraries.findings import Served
from cudaguard.features.duplicate_libraries.judgement import has_variable, is_older_release
from cudaguard.model import TYPE_CHECKING
from cudaguard.system.facts import required_name, requirement_met
from cudaguard.system.name_owners import cuda_of
from cudaguard.system.newer_copies import lacking
from cudaguard.system.packages import is_shared_object, key_of, listed_files
from cudaguard.system.runtimes import (
    Runtime,
    is_same_build,
    runtime_of,
    stem_of,
    version_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudaguard.core.checks import Result
    from cudaguard.core.findings import Finding
    from cudaguard.system.packages import Distribution, SharedFile, Site

    Files = list[tuple[str, str, str]]  # (path, hash, distribution)

# --- CG905: distributions that overwrite or hide one another --------------------------------------

# The hash of an empty file in RECORD. Nobody misses one: a package without ``__init__.py`` works.
EMPTY = "sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
_OF_TORCH = ("libtorch", "libc10")
_SUFFIX = re.compile(r"(?:-cu|-cuda)(\d\d)(?:\d|x)?$")
# From CUDA 13 on these have no suffix, and their version is CUDA's.
_PLAIN = re.compile(
    r"nvidia-(?:cuda-(?:runtime|nvrtc|cupti|nvcc|cccl|crt)|cublas|nvjitlink|nvtx|nvvm)"
)


def check_distributions(site: Site) -> Result:
    """Compare what distributions list."""
    findings = [wording.metadata_unreadable(*problem) for problem in site.installed.unreadable]
    lines = (dist.record.splitlines() for dist in site.installed.found)
    starts = Counter(chain.from_iterable({line.partition(",")[0] for line in of} for of in lines))
    twice = {start for start, count in starts.items() if count > 1}  # the others are no double
    files = [
        (f"{dist.folder}/{path}", digest, dist.name)
        for dist in site.installed.found
        for path, digest, _ in listed_files(dist, starts=twice)
    ]
    found = overlaps(files)
    groups: list[tuple[list[str], list[str]]] = []  # of distributions, with the files
    for pair, paths in found.items():
        # Else it is what several distributions of one namespace contain on purpose, or does no harm
        # in those that others need; texts of others (OpenMM and OpenMM-CUDA-12) do none here.
        is_of_cuda = all(cuda_of_wheel(key_of(name), site.version(name) or "") for name in pair)
        are_asked_for = {*map(key_of, pair)} <= _requirements(site).keys()
        is_on_purpose = are_asked_for or all(path.endswith("/__init__.py") for path in paths)
        if any(map(is_shared_object, paths)) or (is_of_cuda and not is_on_purpose):
            near = [group for group in groups if {*group[0]} & {*pair}]
            names = dict.fromkeys(chain(*(group[0] for group in near), pair))
            joined = [*names], [*chain(*(group[1] for group in near), paths)]
            groups = [*(group for group in groups if group not in near), joined]
    findings += (_overwritten(site, *group, files) for group in groups)
    findings += _hidden(site)
    return findings, f"distributions: {len(site.installed.found)}"


def overlaps(files: Iterable[tuple[str, str, str]]) -> dict[tuple[str, str], list[str]]:
    """Return pairs of distributions, with the files of which one has overwritten the other's.

    `files` are (path, hash, distribution) of all. One without a hash says nothing, and the same
    content twice does no harm.
    """
    first: dict[str, tuple[str, str]] = {}
    found: dict[tuple[str, str], list[str]] = {}
    for path, digest, dist in files:
        if digest:
            before, owner = first.setdefault(path, (digest, dist))
            if owner != dist and before != digest:
                found.setdefault((owner, dist), []).append(path)
    return found


def _overwritten(site: Site, names: list[str], paths: list[str], listed: Files) -> Finding:
    native = [path for path in paths if is_shared_object(path)]
    start = next(f"{dist.folder}/" for dist in site.installed.found if dist.name == names[0])
    kept = _kept(site, names, {*paths})
    gone = [name for name in names if name != kept]
    # An installer deletes what the distribution lists, also where another one has the same file.
    counted = [entry for entry in listed if entry[1] and entry[1] != EMPTY]
    doomed = {path for path, _, dist in counted if dist in gone}
    losing = dict.fromkeys(dist for path, _, dist in counted if path in doomed and dist not in gone)
    asking = [one for name in (kept, *gone) for one in _requirements(site).get(key_of(name), ())]
    return wording.overwritten_files(
        names,
        [path[len(start) :] for path in dict.fromkeys((*native, *paths))],
        asking,
        gone=gone,
        restored=[f"{name}=={site.version(name)}" for name in losing],
        severity="error" if native else "warning",
    )


def _kept(site: Site, names: list[str], shared: set[str]) -> str:
    """Return which to keep: torch's, for GPUs, what others require, for their CUDA, most files."""
    size = {dist.name: dist.record.count("\n") for dist in site.installed.found}
    own = [file for file in site.shared_files if file.path not in shared]
    for_gpus = {file.dist for file in own if any(map(cuda_of, file.needed))}

    def rank(name: str) -> tuple[bool, bool, bool, int, int, int]:
        asking = _requirements(site).get(key_of(name), ())
        cuda = int(cuda_of_wheel(key_of(name), site.version(name) or "") or 0)
        is_of_torch = any(said.startswith("torch ") for said in asking)
        rest = bool(asking), len(asking) * bool(cuda), cuda, size[name]
        return is_of_torch, name in for_gpus and not cuda, *rest

    return max(names, key=rank)


@lru_cache(1)
def _requirements(site: Site) -> dict[str, list[str]]:
    """Return who requires each distribution, in words."""
    found: dict[str, list[str]] = {}
    for dist in site.installed.found:
        for said in dist.required():
            words = f"{dist.name} {dist.version} requires {said}"
            found.setdefault(key_of(required_name(said)), []).append(words)
    return found


def cuda_of_wheel(key: str, version: str) -> str:
    """Return the major version of CUDA that a wheel like ``nvidia-cublas-cu12`` is for, or ""."""
    if not key.startswith(("nvidia-", "cupy-")):
        return ""
    if match := _SUFFIX.search(key):
        return match[1]
    return version.partition(".")[0] if _PLAIN.fullmatch(key) else ""


def _hidden(site: Site) -> Iterator[Finding]:
    """Tell of distributions that hide those for which others, beside these, were installed."""
    first = {dist.key: dist for dist in site.installed.found}
    for other in site.installed.hidden:
        dist = first[other.key]
        if dist.version != other.version and (users := dict(_users(site, dist, other))):
            yield wording.hidden(dist, other, dict(sorted(users.items())))


def _users(site: Site, dist: Distribution, other: Distribution) -> Iterator[tuple[str, str]]:
    """Yield what is beside the `other` and needs that one, not `dist`, and how it says so."""
    folder = os.path.realpath(other.folder)
    beside = (one for one in site.installed.found if os.path.realpath(one.folder) == folder)
    for user, said in ((one.name, said) for one in beside for said in one.requires):
        if key_of(name := required_name(said)) == dist.key:
            with suppress(ValueError):  # one that cannot be read
                met = [requirement_met(said, {name: d.version}.get) for d in (dist, other)]
                if met == [False, True]:
                    yield user, f"requires {said}"
    for file in site.shared_files if dist.key == "torch" else ():
        is_beside = os.path.realpath(file.path).startswith(os.path.join(folder, ""))
        if is_beside and any(name.startswith(_OF_TORCH) for name in file.needed):
            yield file.dist, "links torch"


DISTRIBUTIONS = Check(
    wording.INSTALLATION,
    "Two distributions that contain the same file with different contents (cupy and "
    "cupy-cuda12x, wheels of two CUDA families), one that hides another version for which others "
    "were installed, metadata that cannot be read. Reads metadata only.",
    check_distributions,
)

# --- CG903: library names that lead to different files --------------------------------------------


def check_libraries(site: Site) -> Result:
    """Look each library up as the loader would for each of those that ask."""
    owners = {identity(file.path): file.dist for file in site.shared_files}
    wheels = {file.soname: file for file in site.shared_files if file.dist.startswith("nvidia-")}
    requires = {
        dist.name: {*map(key_of, map(required_name, dist.required()))}
        for dist in site.installed.found
    }
    names: dict[str, dict[str, Served]] = {}
    for asking in site.shared_files:
        required = requires.get(asking.dist, set())
        for name in asking.needed:
            runtime = runtime_of(stem_of(name)) if stem_of(name) else None
            path = _found(asking, name) if runtime and not runtime.rival else ""
            is_opened = name in wheels and _opens(asking, wheels[name], required)
            if not (runtime and path) or is_opened:  # somebody has to have loaded it before
                continue
            files = names.setdefault(name, {})
            if path not in files:
                version = version_of(path, name)
                files[path] = Served(path, {}, version, owners.get(identity(path), ""))
            files[path].askers.setdefault(asking.dist, []).append(asking.path)
    if not names:
        raise Skipped("nothing that is installed asks for a library that may be there twice")
    findings: list[Finding] = []
    for name, found in names.items():
        served = [*found.values()]
        findings += _of_one_name(name, served) if served[1:] else _astray(site, name, *served)
    return findings, f"libraries asked for: {len(names)}"


def _opens(asking: SharedFile, wheel: SharedFile, required: set[str]) -> bool:
    """Return True if a package has a wheel's library opened before its own asks for it.

    That does torch, or NVIDIA's search; or its own code, where no run path leads to the wheel.
    """
    if not required.isdisjoint(("torch", "cuda-pathfinder")):
        return True
    place = read_place(asking.path) if key_of(wheel.dist) in required else None
    folders = map(os.path.realpath, (*place.runpath, *place.rpath)) if place else ()
    return bool(place) and os.path.dirname(os.path.realpath(wheel.path)) not in folders


def _found(asking: SharedFile, name: str) -> str:
    place = read_place(asking.path)
    path = SearchPath(()).find(name, place) if place else ""
    return os.path.realpath(path) if path else ""


def _danger(older: Served, newer: Served, askers: dict[str, list[str]], runtime: Runtime) -> str:
    """Return what those who ask may miss in a file that is older; empty for nothing."""
    if not is_older_release(older.version, newer.version) or is_same_build(older.path, newer.path):
        return ""
    try:
        with ElfFile(older.path) as first, ElfFile(newer.path) as second:
            both = SharedObject(first), SharedObject(second)
            for dist, path in ((dist, path) for dist, paths in askers.items() for path in paths):
                if symbols := lacking(*both, path):
                    return wording.undefined(dist, symbols)
    except (OSError, ValueError):
        pass
    return "" if runtime.danger == Runtime.danger else runtime.danger


def _of_one_name(name: str, files: list[Served]) -> Iterator[Finding]:
    """Tell of a name that leads to several files, once."""
    for other in files[1:]:
        older, newer = sorted((files[0], other), key=lambda served: served.version)
        runtime = runtime_of(stem_of(name))
        if danger := _danger(older, newer, newer.askers, runtime):
            told = name, older, newer, runtime.title, danger
            is_named = newer.dist and has_variable(older.path)
            yield wording.astray(*told, is_named=True) if is_named else wording.two_files(*told)
            return


def _astray(site: Site, name: str, served: Served) -> Iterator[Finding]:
    """Tell of an older file from elsewhere, where a wheel of NVIDIA's brings that library."""
    wheel = next(
        (f for f in site.shared_files if f.soname == name and f.dist.startswith("nvidia-")), None
    )
    if wheel is None or served.dist:
        return
    prefix = f"{os.path.realpath(sys.prefix)}{os.sep}"
    if os.path.isdir(f"{prefix}conda-meta") and served.path.startswith(prefix):
        return  # conda's own, which those meant who ask
    runtime, path = runtime_of(stem_of(name)), os.path.realpath(wheel.path)
    meant = Served(path, {}, version_of(path, name), wheel.dist)
    if danger := _danger(served, meant, served.askers, runtime):
        told = name, served, meant, runtime.title, danger
        yield wording.astray(*told, is_named=has_variable(served.path))


SHARED_LIBRARIES = Check(
    wording.SHARED_NAME,
    "A process has one file per library name: the first package to ask for libcudnn.so.9 decides "
    "for all. Shows where a package would get an older file than the one it was built "
    "with, from another package, a folder of LD_LIBRARY_PATH or the system, if that lacks symbols "
    "that it needs, or is known to fail. Copies that no package would load do not count.",
    check_libraries,
)
