"""CG905: distributions that overwrite or contradict one another."""

from __future__ import annotations

from cudaguard.policy.installed import asked_for, overlaps, unmet
from cudaguard.probe.distributions import is_shared_object, key_of, listed_files
from cudaguard.report.doctor import installed as wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudaguard.doctor.site import Result, Site
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
        for lack in unmet(dist.name, _about(dist.requires, "torch"), site.version)
        if key_of(lack.name) == "torch" and lack.found is not None
    ]
    return findings, f"{len(site.distributions)} distributions"


def _about(requires: Iterable[str], name: str) -> list[str]:
    """Return those of some requirements that begin with a name: most need not be parsed."""
    return [one for one in requires if key_of(one).startswith(name)]


def _kept(site: Site, overlap: Overlap) -> str:
    """Return which of two to keep: what others require, or the first."""
    for name in (overlap.first, overlap.second):
        for dist in site.distributions:
            for asked, wanted in asked_for(_about(dist.requires, key_of(name))).items():
                if key_of(asked) == key_of(name):
                    return f"{name}{wanted}"
    return f"{overlap.first}=={site.version(overlap.first)}"
