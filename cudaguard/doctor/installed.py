"""CG905, CG906: distributions that overwrite or contradict one another, and torch's own pins."""

from __future__ import annotations

import re

from cudaguard.doctor.site import Skipped
from cudaguard.policy.installed import asked_for, overlaps, unmet
from cudaguard.policy.wheels import families
from cudaguard.probe.distributions import is_shared_object, key_of, listed_files
from cudaguard.report.doctor import installed as wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudaguard.doctor.site import Result, Site
    from cudaguard.model import Finding
    from cudaguard.policy.installed import Overlap


def check(site: Site) -> Result:
    """Compare what distributions list and require."""
    findings = [wording.metadata_unreadable(*one) for one in site.unreadable]
    listed = (
        (f"{dist.folder}/{path}", digest, dist.name)
        for dist in site.distributions
        for path, digest in listed_files(dist)
    )
    folders = {dist.name: f"{dist.folder}/" for dist in site.distributions}
    for overlap in overlaps(listed):
        native = [path for path in overlap.files if is_shared_object(path)]
        if native:  # what two share besides may be made to be shared
            start = folders[overlap.first]
            files = tuple(path[len(start) :] for path in (*native, *overlap.files))
            told = overlap._replace(files=tuple(dict.fromkeys(files)))
            findings.append(wording.overwritten(told, keep=_kept(site, overlap), is_native=True))
    findings += [
        wording.not_met(lack._replace(by=f"{lack.by} {dist.version}"))
        for dist in site.distributions
        for lack in unmet(dist.name, asked_for(_about(dist.requires, "torch")), site.version)
        if key_of(lack.name) == "torch" and lack.found is not None
    ]
    findings += _left_over(site)
    return findings, f"distributions: {len(site.distributions)}"


def check_pins(site: Site) -> Result:
    """Compare the wheels of NVIDIA's with what torch pins."""
    torch = next((dist for dist in site.distributions if dist.key == "torch"), None)
    if torch is None:
        raise Skipped("torch is not installed")
    asked = [
        one
        for start in ("nvidia-", "cuda-", "triton")
        for one in asked_for(_about(torch.requires, start))
    ]
    if not asked:
        raise Skipped(f"torch {torch.version} requires no wheels of NVIDIA's")
    for dist in site.distributions:  # from CUDA 13 on, cuda-toolkit[cublas,...] has the pins
        for one in asked:
            if one.extras and key_of(one.name) == dist.key:
                asked = [*asked, *asked_for(dist.requires, one.extras)]
                break
    lacking = unmet(torch.name, asked, site.version)
    return [wording.other_release(torch.version, lack) for lack in lacking], f"pins: {len(asked)}"


def _left_over(site: Site) -> list[Finding]:
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
    return [
        wording.left_over(major, found[major], [other for other in found if other != major])
        for major in unasked
        if all(wheel.startswith("nvidia-") for wheel in found[major])
    ]


def _about(requires: Iterable[str], name: str) -> list[str]:
    """Return those of some requirements that begin with a name: most need not be parsed."""
    return [one for one in requires if key_of(one[: len(name)]).startswith(name)]


def _kept(site: Site, overlap: Overlap) -> str:
    """Return which of two to keep: what others require, or the first."""
    for name in (overlap.first, overlap.second):
        for dist in site.distributions:
            for asked in asked_for(_about(dist.requires, key_of(name))):
                if key_of(asked.name) == key_of(name):
                    return f"{name}{asked.wanted}"
    return f"{overlap.first}=={site.version(overlap.first)}"
