"""CG903, CG905, CG906: what is installed twice, overwrites or contradicts one another."""

from __future__ import annotations

import os
import re
import sys
from typing import NamedTuple

from cudaguard.core.checks import Check
from cudaguard.elf.library_facts import is_same_build, version_of
from cudaguard.elf.reader import ElfFile
from cudaguard.elf.search_path import Place, SearchPath
from cudaguard.features.duplicate_libraries import findings as wording
from cudaguard.features.duplicate_libraries import policy
from cudaguard.features.duplicate_libraries.findings import Overlap, Served, Unmet
from cudaguard.system.facts import in_range
from cudaguard.system.packages import (
    Skipped,
    is_shared_object,
    key_of,
    listed_files,
    replaced,
    requiring_another,
)
from cudaguard.system.runtimes import runtime_of, stem_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cudaguard.model import Finding
    from cudaguard.system.packages import Distribution, Result, SharedFile, Site

    Files = list[tuple[str, str, str]]  # (path, hash, distribution)

# --- CG905: distributions that overwrite or contradict one another --------------------------------


# The hash of an empty file in RECORD. Nobody misses one: a package without ``__init__.py`` works.
EMPTY = "sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"


def overlaps(files: Iterable[tuple[str, str, str]]) -> list[Overlap]:
    """Return who has overwritten whose files.

    Args:
        files: Of all distributions: (path, hash, distribution). One without a hash says nothing,
            and the same content twice does no harm.
    """
    first: dict[str, tuple[str, str]] = {}
    found: dict[tuple[str, str], list[str]] = {}
    for path, digest, dist in files:
        if not digest:
            continue
        before, owner = first.setdefault(path, (digest, dist))
        if owner != dist and before != digest:
            found.setdefault((owner, dist), []).append(path)
    return [Overlap(*pair, tuple(paths)) for pair, paths in found.items()]


def sharers(files: Iterable[tuple[str, str, str]], gone: str) -> list[str]:
    """Return the distributions that lose files when another is uninstalled.

    An installer deletes whatever the distribution lists, even where another one has the same
    file with the same content.

    Args:
        files: As of `overlaps`.
        gone: The distribution to be uninstalled.
    """
    listed = [one for one in files if one[1] and one[1] != EMPTY]
    doomed = {path for path, _, dist in listed if dist == gone}
    return list(dict.fromkeys(d for path, _, d in listed if path in doomed and d != gone))


class Asked(NamedTuple):
    """A requirement that counts on this machine.

    Args:
        name: What is required.
        wanted: In which versions, as in ``==2.6.0``; may be empty.
        extras: Which of its extras.
    """

    name: str
    wanted: str
    extras: tuple[str, ...]


def asked_for(requires: Iterable[str], extras: Iterable[str] = ()) -> list[Asked]:
    """Return what a distribution requires on this machine.

    Args:
        requires: Its requirements, as it spells them; what cannot be read is passed over.
        extras: Which of its extras somebody wants.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    found = []
    for text in requires:
        try:
            one = Requirement(text)
            is_asked = one.marker is None or any(
                one.marker.evaluate({"extra": extra}) for extra in ("", *extras)
            )
        except (InvalidRequirement, ValueError):  # also markers that make no sense
            continue
        if is_asked:
            found.append(Asked(one.name, str(one.specifier), tuple(sorted(one.extras))))
    return found


def unmet(
    dist: str, asked: Iterable[Asked], version_of: Callable[[str], str | None]
) -> list[Unmet]:
    """Return the requirements of a distribution that are not met.

    Args:
        dist: Its name.
        asked: Those that matter.
        version_of: Returns the version of what is installed.
    """
    return [
        Unmet(dist, one.name, one.wanted, version)
        for one in asked
        for version in [version_of(one.name)]
        if version is None or (one.wanted and not in_range(version, one.wanted))
    ]


_WITH_TORCH = ("torch", "cuda-toolkit")  # whose pins are torch's
_OF_TORCH = ("libtorch", "libc10")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w.-]+)")


def check_distributions(site: Site) -> Result:
    """Compare what distributions list and require."""
    findings = [wording.metadata_unreadable(*one) for one in site.unreadable]
    files = [
        (f"{dist.folder}/{path}", digest, dist.name)
        for dist in site.distributions
        for path, digest in listed_files(dist)
    ]
    findings += [
        _overwritten(site, overlap, files)
        for overlap in overlaps(files)
        # What several distributions of one namespace contain on purpose.
        if not all(path.endswith("/__init__.py") for path in overlap.files)
    ]
    for dist in site.distributions:
        if dist.key.startswith("nvidia-"):
            lost = _missing(dist)
            if lost:
                findings.append(wording.files_missing(f"{dist.name}=={dist.version}", lost))
    findings += [
        wording.not_met(lack._replace(by=f"{lack.by} {dist.version}"))
        for dist in site.distributions
        for lack in unmet(dist.name, asked_for(_about(dist.requires, "torch")), site.version)
        if key_of(lack.name) == "torch" and lack.found is not None
    ]
    findings += _hidden_torch(site)
    findings += _of_conda(site)
    return findings, f"distributions: {len(site.distributions)}"


def _of_conda(site: Site) -> Iterator[Finding]:
    """Compare what conda's documents list with what pip installed."""
    others = []
    for one in replaced(site.conda):
        wanted = list(requiring_another(one, site.conda))
        if one.is_mixed or wanted:
            yield wording.mixed_releases(one, wanted)
        else:
            others.append(one)
    if others:
        yield wording.replaced(others)


def _is_of_conda(dist: Distribution, site: Site) -> bool:
    return any(os.path.basename(dist.metadata) in package.metadata for package in site.conda)


def _hidden_torch(site: Site) -> Iterator[Finding]:
    """Tell of a torch that another one hides from the extensions that were built for it."""
    torch = next((dist for dist in site.distributions if dist.key == "torch"), None)
    for other in site.hidden:
        if other.key != "torch" or torch is None or other.version == torch.version:
            continue
        folder = os.path.join(os.path.realpath(other.folder), "")
        users = {
            file.dist
            for file in site.shared_files
            if os.path.realpath(file.path).startswith(folder)
            and any(name.startswith(_OF_TORCH) for name in file.needed)
        }
        if users:
            yield wording.hidden(torch, other, sorted(users))


def _overwritten(site: Site, overlap: Overlap, listed: Files) -> Finding:
    native = [path for path in overlap.files if is_shared_object(path)]
    start = next(f"{dist.folder}/" for dist in site.distributions if dist.name == overlap.first)
    files = (path[len(start) :] for path in (*native, *overlap.files))
    kept = _kept(site, overlap)
    gone = overlap.second if kept == overlap.first else overlap.first
    of_cuda = all(cuda_of(key_of(name), site.version(name) or "") for name in overlap[:2])
    return wording.overwritten(
        overlap._replace(files=tuple(dict.fromkeys(files))),
        gone=gone,
        restored=[f"{name}=={site.version(name)}" for name in sharers(listed, gone)],
        severity="error" if native else "warning" if of_cuda else "info",
    )


def _missing(dist: Distribution) -> list[str]:
    """Return the files that a distribution lists and that are not there, libraries first."""
    lost = [
        path
        for path, digest in listed_files(dist)
        if digest and digest != EMPTY and not os.path.lexists(os.path.join(dist.folder, path))
    ]
    return sorted(lost, key=is_shared_object, reverse=True)


def check_pins(site: Site) -> Result:
    """Compare the wheels of NVIDIA's with what is required of them."""
    torch = next((dist for dist in site.distributions if dist.key == "torch"), None)
    findings: list[Finding] = []
    pins = 0
    if torch is not None and not _is_of_conda(torch, site):
        findings, pins = _of_torch(torch, site)
    for dist in site.distributions:
        if _is_of_conda(dist, site):  # it has its libraries from conda
            continue
        if dist.key not in _WITH_TORCH and not dist.key.startswith("nvidia-"):
            asked = _of_installed(dist, site)
            pins += len(asked)
            findings += [
                wording.not_the_release(f"{dist.name} {dist.version}", lack, _distance(lack))
                for lack in unmet(dist.name, asked, site.version)
            ]
    if not pins:
        raise Skipped("nothing that is installed requires wheels of NVIDIA's")
    return findings, f"pins: {pins}"


def _of_installed(dist: Distribution, site: Site) -> list[Asked]:
    """Return what a distribution requires of wheels of NVIDIA's that are installed, for any extra.

    Which extras it was installed with is written nowhere; with another release they fail alike.
    """
    about = _about(dist.requires, "nvidia-")
    extras = {found[1] for one in about for found in _EXTRA.finditer(one)}
    return [
        one
        for one in asked_for(about, sorted(extras))
        if cuda_of(key_of(one.name), site.version(one.name) or "")
        and site.version(one.name) is not None
    ]


def _distance(lack: Unmet) -> str:
    """Return how what is installed differs from what is wanted: ``older``, ``major``, ``newer``."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    wanted = [
        (one.operator, one.version.replace(".*", ""))
        for one in SpecifierSet(lack.wanted)
        if one.operator in ("==", ">=", "~=", ">", "<=")
    ]
    try:
        found = Version(lack.found or "0")
        named = [(sign, Version(version)) for sign, version in wanted]
    except InvalidVersion:
        return "newer"
    if any(found < version for sign, version in named if sign != "<="):
        return "older"
    is_later = named and found.major > max(version.major for _, version in named)
    return "major" if is_later else "newer"


def _of_torch(torch: Distribution, site: Site) -> tuple[list[Finding], int]:
    asked = [
        one
        for start in ("nvidia-", "cuda-", "triton")
        for one in asked_for(_about(torch.requires, start))
    ]
    for dist in site.distributions:  # from CUDA 13 on, cuda-toolkit[cublas,...] has the pins
        for one in asked:
            if one.extras and key_of(one.name) == dist.key:
                asked = [*asked, *asked_for(dist.requires, one.extras)]
                break
    lacking = unmet(torch.name, asked, site.version)
    return [wording.other_release(torch.version, lack) for lack in lacking], len(asked)


def _about(requires: Iterable[str], name: str) -> list[str]:
    """Return those of some requirements that begin with a name: most need not be parsed."""
    return [one for one in requires if key_of(one[: len(name)]).startswith(name)]


def _kept(site: Site, overlap: Overlap) -> str:
    """Return which of two to keep: what others require, the one for the newest CUDA, the first."""
    pair = overlap.first, overlap.second
    for name in pair:
        for dist in site.distributions:
            for asked in asked_for(_about(dist.requires, key_of(name))):
                if key_of(asked.name) == key_of(name):
                    return name
    return max(pair, key=lambda name: int(cuda_of(key_of(name), site.version(name) or "") or 0))


DISTRIBUTIONS = Check(
    "CG905",
    "installed distributions",
    "Two distributions that contain the same file with different contents (cupy and "
    "cupy-cuda12x, wheels of two CUDA families), files of NVIDIA's wheels that are gone, "
    "requirements on torch that the installed one does not meet, metadata that cannot be read. In "
    "an environment of conda's: packages that pip replaced or mixed. Reads metadata only.",
    check_distributions,
)

PINNED_WHEELS = Check(
    "CG906",
    "NVIDIA wheels that packages pin",
    "torch pins each wheel of NVIDIA's to one release, and JAX, TensorFlow, CuPy and others want "
    "releases of their own. pip moves the wheels when another package asks for it, and says so in "
    "one line at most.",
    check_pins,
)

# --- what wheels are for --------------------------------------------------------------------------

_SUFFIX = re.compile(r"(?:-cu|-cuda)(\d\d)(?:\d|x)?$")
# From CUDA 13 on these have no suffix, and their version is CUDA's.
_PLAIN = re.compile(
    r"nvidia-(?:cuda-(?:runtime|nvrtc|cupti|nvcc|cccl|crt)|cublas|nvjitlink|nvtx|nvvm)"
)


def cuda_of(key: str, version: str) -> str:
    """Return the major version of CUDA that a wheel of NVIDIA's is for, empty if that is open.

    Args:
        key: Its name as names are compared, as in ``nvidia-cublas-cu12``.
        version: Its version.
    """
    if not key.startswith(("nvidia-", "cupy-")):
        return ""
    match = _SUFFIX.search(key)
    if match:
        return match[1]
    return version.partition(".")[0] if _PLAIN.fullmatch(key) else ""


# --- CG903: library names that lead to different files --------------------------------------------


def check_libraries(site: Site) -> Result:
    """Look each library up as the loader would for each of those that ask."""
    owners = {os.path.realpath(file.path): file for file in site.shared_files}
    names: dict[str, dict[str, Served]] = {}
    for asking in site.shared_files:
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
                served = names[name][path] = Served(path, {}, version, owner)
            served.askers.setdefault(asking.dist, asking.path)
    if not names:
        raise Skipped("nothing that is installed asks for a library that may be there twice")
    findings: list[Finding] = []
    for name, files in names.items():
        findings += _of_one_name(name, list(files.values()))
        findings += _astray(site, name, list(files.values()))
    return [*findings, *_rivals(names)], f"libraries asked for: {len(names)}"


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
    if site.conda and served.path.startswith(f"{os.path.realpath(sys.prefix)}{os.sep}"):
        return []  # conda's own, which those meant who ask
    version = version_of(meant, name, runtime_of(stem).wheel)
    kind = policy.compared((served.version, version))
    if kind == policy.SAME:
        return []
    ours = Served(meant, {}, version, wheel.dist)
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
        wording.two_rivals(rival, one[1], other[1])
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
    check_libraries,
)
