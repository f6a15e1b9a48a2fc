"""CG903: library names that lead to different files, depending on who asks first."""

from __future__ import annotations

import os

from cudaguard.core.checks import Check
from cudaguard.elf.library_version import is_same_build, version_of
from cudaguard.elf.reader import ElfFile, read_elf
from cudaguard.elf.search_path import Place, SearchPath
from cudaguard.features.duplicate_libraries.messages import libraries as wording
from cudaguard.features.duplicate_libraries.messages.libraries import Served
from cudaguard.features.duplicate_libraries.policy import duplicates as policy
from cudaguard.system.conda import owners as owners_by_conda
from cudaguard.system.conda import users_of_cuda
from cudaguard.system.distributions import SharedFile
from cudaguard.system.runtimes import runtime_of, stem_of
from cudaguard.system.site import Skipped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudaguard.model import Finding
    from cudaguard.system.site import Result, Site


def check(site: Site) -> Result:
    """Look each library up as the loader would for each of those that ask."""
    owners = {os.path.realpath(file.path): file for file in site.shared_files}
    condas = owners_by_conda(site.conda)
    names: dict[str, dict[str, Served]] = {}
    for asking in _asking(site):
        for name in asking.needed:
            stem = stem_of(name)
            if not stem or (runtime_of(stem).is_checked and not runtime_of(stem).rival):
                continue
            path = _found(asking, name)
            if not path:  # somebody has to have loaded it before
                continue
            served = names.setdefault(name, {}).get(path)
            if served is None:
                owner = owners[path].dist if path in owners else ""
                version = version_of(path, name, runtime_of(stem).wheel)
                served = names[name][path] = Served(path, {}, version, owner, condas.get(path, ""))
            served.askers.setdefault(asking.dist, asking.path)
    if not names:
        raise Skipped("nothing that is installed asks for a library that may be there twice")
    findings: list[Finding] = []
    for name, files in names.items():
        findings += _of_one_name(name, list(files.values()))
        findings += _astray(site, name, list(files.values()))
    return [*findings, *_rivals(names)], f"libraries asked for: {len(names)}"


def _asking(site: Site) -> Iterator[SharedFile]:
    """Yield what is installed, and libraries of conda's by which it comes to those of CUDA.

    The modules of cudf need ``libcudf.so``, which is a package without a module.
    """
    wheels = any(dist.key.startswith("nvidia-") for dist in site.distributions)
    between = users_of_cuda(site.conda) if wheels else frozenset()
    files, seen = list(site.shared_files), set()
    for asking in files:  # and what is appended
        yield asking
        for name in between.intersection(asking.needed):
            path = _found(asking, name)
            if path and path not in seen:
                seen.add(path)
                elf = read_elf(path)
                files.append(SharedFile(path, asking.dist, elf.needed, elf.soname))


def _found(asking: SharedFile, name: str) -> str:
    try:
        with ElfFile(asking.path) as file:
            path = SearchPath(()).find(name, Place(asking.path, file, None))
    except (OSError, ValueError, OverflowError):
        return ""
    return os.path.realpath(path) if path else ""


def _of_one_name(name: str, files: list[Served]) -> list[Finding]:
    """Return what there is to say of one name that leads to several files."""
    first = files[0]
    for other in files[1:]:
        if is_same_build(first.path, other.path):
            continue
        older, newer = sorted((first, other), key=lambda one: one.version)
        kind = policy.compared((older.version, newer.version))
        if kind != policy.SAME:
            runtime = runtime_of(stem_of(name))
            is_fault = policy.is_fault(kind, stem_of(name))
            return [wording.two_files(name, older, newer, runtime, is_fault=is_fault)]
    return []


def _astray(site: Site, name: str, files: list[Served]) -> list[Finding]:
    """Return who gets a file from elsewhere though a wheel of NVIDIA's brings that library."""
    wheel = next(
        (f for f in site.shared_files if f.soname == name and f.dist.startswith("nvidia-")), None
    )
    if wheel is None or len(files) > 1:  # several are told of already
        return []
    (served,) = files
    meant = os.path.realpath(wheel.path)
    stem = stem_of(name)
    if served.path == meant or served.dist or is_same_build(served.path, meant):
        return []
    version = version_of(meant, name, runtime_of(stem).wheel)
    kind = policy.compared((served.version, version))
    if kind == policy.SAME:
        return []
    ours = Served(meant, {}, version, wheel.dist)
    if served.conda:  # as those meant it who ask; who opens the wheel's by name is not known
        return [wording.two_sources(name, served, ours, runtime_of(stem))]
    is_fault = policy.is_fault(kind, stem)
    named = site.environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":")
    is_named = os.path.dirname(served.path) in map(os.path.realpath, filter(None, named))
    return [
        wording.astray(name, served, ours, runtime_of(stem), is_fault=is_fault, is_named=is_named)
    ]


def _rivals(names: dict[str, dict[str, Served]]) -> list[Finding]:
    """Return libraries that end the process beside one another, where different packages ask."""
    by_kind: dict[str, list[tuple[str, Served]]] = {}
    for name, files in names.items():
        rival = runtime_of(stem_of(name)).rival
        if rival:
            by_kind.setdefault(rival, []).extend((name, served) for served in files.values())
    return [
        wording.rivals(rival, one[1], other[1])
        for rival, found in by_kind.items()
        for one, other in zip(found, found[1:])
        # One name leads to one file, whichever package asks first.
        if one[0] != other[0]
        and one[1].path != other[1].path
        and set(one[1].askers) != set(other[1].askers)
    ]


LIBRARIES = Check(
    "CG903",
    "libraries that packages share",
    "A process has one file per library name: the first package to ask for libcudnn.so.9 decides "
    "for all. Shows where packages would get different files, and where a folder of "
    "LD_LIBRARY_PATH or the system comes before the one a package was built with. Copies that no "
    "package would load do not count.",
    check,
)
