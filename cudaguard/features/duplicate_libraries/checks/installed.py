"""CG905, CG906: distributions that overwrite or contradict one another, and pins of wheels."""

from __future__ import annotations

import os
import re

from cudaguard.core.checks import Check
from cudaguard.features.duplicate_libraries.messages import conda as conda_wording
from cudaguard.features.duplicate_libraries.messages import installed as wording
from cudaguard.features.duplicate_libraries.policy.installed import (
    EMPTY,
    asked_for,
    overlaps,
    sharers,
    unmet,
)
from cudaguard.features.duplicate_libraries.policy.wheels import cuda_of, families
from cudaguard.system.conda import gone, is_of_conda, pairs, unmet_by
from cudaguard.system.distributions import is_shared_object, key_of, listed_files
from cudaguard.system.site import Skipped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudaguard.features.duplicate_libraries.policy.installed import Asked, Overlap, Unmet
    from cudaguard.model import Finding
    from cudaguard.system.distributions import Distribution
    from cudaguard.system.site import Result, Site

    Files = list[tuple[str, str, str]]  # (path, hash, distribution)

_WITH_TORCH = ("torch", "cuda-toolkit")  # whose pins are torch's
_OF_TORCH = ("libtorch", "libc10")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w.-]+)")


def check(site: Site) -> Result:
    """Compare what distributions list and require."""
    findings = [wording.metadata_unreadable(*one) for one in site.unreadable]
    files = list(_listed(site))
    findings += [
        _overwritten(site, overlap, files)
        for overlap in overlaps(files)
        if not all(map(_is_made_to_be_shared, overlap.files))
    ]
    for dist in site.distributions:
        if dist.key.startswith("nvidia-"):
            lost = _missing(dist)
            if lost:
                findings.append(wording.files_missing(_pinned(site, dist.name), lost))
    findings += [
        wording.not_met(lack._replace(by=f"{lack.by} {dist.version}"))
        for dist in site.distributions
        for lack in unmet(dist.name, asked_for(_about(dist.requires, "torch")), site.version)
        if key_of(lack.name) == "torch" and lack.found is not None
    ]
    findings += _left_over(site, files)
    findings += _hidden_torch(site)
    findings += _of_conda(site)
    looked_at = f"distributions: {len(site.distributions)}"
    return findings, f"{looked_at}, conda's: {len(site.conda)}" if site.conda else looked_at


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


def _of_conda(site: Site) -> Iterator[Finding]:
    """Compare what conda's documents list with what pip installed, and with what is there."""
    found = list(pairs(site.distributions, site.conda))
    yield from (conda_wording.installed_twice(pair) for pair in found if pair.is_mixed)
    replaced = [pair for pair in found if not pair.is_mixed]
    for lack in unmet_by([pair for pair in replaced if pair.is_native], site.conda):
        yield conda_wording.required_otherwise(*lack)
    if replaced:
        yield conda_wording.replaced(replaced)
    for package, lost in gone(site.conda):
        is_library = lost[0].startswith("lib/")
        yield (conda_wording.library_missing if is_library else conda_wording.package_missing)(
            package, lost
        )


def _listed(site: Site) -> Iterator[tuple[str, str, str]]:
    """Yield (path, hash, distribution) of all files that are listed."""
    for dist in site.distributions:
        for path, digest in listed_files(dist):
            yield f"{dist.folder}/{path}", digest, dist.name


def _is_made_to_be_shared(path: str) -> bool:
    """Return True for what several distributions of one namespace contain on purpose."""
    return path.endswith("/__init__.py")


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
        restored=_losers(site, listed, {gone}),
        severity="error" if native else "warning" if of_cuda else "info",
    )


def _losers(site: Site, listed: Files, gone: set[str]) -> list[str]:
    """Return, as ``NAME==VERSION``, what must be installed anew after others are uninstalled."""
    return [_pinned(site, name) for name in sharers(listed, gone)]


def _pinned(site: Site, name: str) -> str:
    return f"{name}=={site.version(name)}"


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
    if torch is not None and not is_of_conda(torch, site.conda):
        findings, pins = _of_torch(torch, site)
    for dist in site.distributions:
        if is_of_conda(dist, site.conda):  # it has its libraries from conda
            continue
        if dist.key not in _WITH_TORCH and not dist.key.startswith("nvidia-"):
            asked = _of_installed(dist, site)
            pins += len(asked)
            findings += [
                wording.not_the_release(
                    f"{dist.name} {dist.version}",
                    lack,
                    is_older=_is_older(lack),
                    is_of_other_major=_is_of_other_major(lack),
                )
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


def _is_older(lack: Unmet) -> bool:
    """Return True if what is installed is earlier than all that is wanted."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    wanted = [one for one in SpecifierSet(lack.wanted) if one.operator in ("==", ">=", "~=", ">")]
    try:
        least = [Version(one.version.replace(".*", "")) for one in wanted]
        return any(Version(lack.found or "0") < one for one in least)
    except InvalidVersion:
        return False


def _is_of_other_major(lack: Unmet) -> bool:
    """Return True if what is installed is of a later major version than what is named."""
    from packaging.specifiers import SpecifierSet

    wanted = [one for one in SpecifierSet(lack.wanted) if one.operator in ("==", ">=", "~=", "<=")]
    majors = [int(word) for one in wanted for word in [one.version.partition(".")[0]]
              if word.isdecimal()]  # fmt: skip
    found = (lack.found or "").partition(".")[0]
    return bool(majors) and found.isdecimal() and int(found) > max(majors)


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


def _left_over(site: Site, listed: Files) -> list[Finding]:
    found = families(site.versions)
    if len(found) < 2:
        return []
    # In whatever case it asks: what an extra wants may have been installed for its sake.
    asked = {
        key_of(re.split(r"[^\w.-]", text, maxsplit=1)[0])
        for dist in site.distributions
        for text in _about(dist.requires, "nvidia-")
    }
    unasked = [major for major, wheels in found.items() if not asked & set(wheels)]
    if len(unasked) == len(found):  # by hand: then it is the newest that is wanted
        unasked.remove(max(unasked, key=int))
    names = {dist.key: dist.name for dist in site.distributions}
    return [
        wording.left_over(
            major,
            found[major],
            [other for other in found if other != major],
            _losers(site, listed, {names[wheel] for wheel in found[major]}),
        )
        for major in unasked
        if all(wheel.startswith("nvidia-") for wheel in found[major])
    ]


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
    "an environment of conda's: packages that pip replaced or mixed, libraries that are gone. "
    "Reads metadata, and some files that conda and pip both list.",
    check,
)


PINNED_WHEELS = Check(
    "CG906",
    "NVIDIA wheels that packages pin",
    "torch pins each wheel of NVIDIA's to one release, and JAX, TensorFlow, CuPy and others want "
    "releases of their own. pip moves the wheels when another package asks for it, and says so in "
    "one line at most.",
    check_pins,
)
