"""What conda, mamba or pixi installed in this environment, and what pip put in its place.

``conda-meta`` has one document per package: hundreds, of tens of megabytes together, which are
searched as bytes.
"""

from __future__ import annotations

import os
import re
import sysconfig
from typing import NamedTuple

from cudaguard.files import LARGEST, read_bytes
from cudaguard.system.distributions import key_of
from cudaguard.system.versions import in_range

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# As conda names a document: name, version, build.
_DOCUMENT = re.compile(r"(.+)-([^-]+)-([^-]+)\.json")
_METADATA = re.compile(rb'site-packages/([^/"\\]+\.dist-info)/')
_REQUIREMENT = re.compile(rb'"([\w.-]{1,100}) ([^" ]{1,200})')


class CondaPackage(NamedTuple):
    """A package of conda's.

    Args:
        name: Its name.
        version: Its version.
        document: The file that describes it.
        metadata: Its folders in ``site-packages``, as ``numpy-1.26.4.dist-info``.
    """

    name: str
    version: str
    document: str
    metadata: frozenset[str]


class ReplacedPackage(NamedTuple):
    """A package of conda's of which pip has installed another release.

    Args:
        package: Conda's.
        dist: The name of pip's.
        version: Its version.
        is_mixed: True if conda's metadata are there as well.
    """

    package: CondaPackage
    dist: str
    version: str
    is_mixed: bool


def documents(prefix: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, version, build and document of the packages of an environment."""
    folder = os.path.join(prefix, "conda-meta")
    for file in _names_in(folder):
        match = _DOCUMENT.fullmatch(file)
        if match:
            yield match[1], match[2], match[3], os.path.join(folder, file)


def conda_packages(prefix: str) -> list[CondaPackage]:
    """Return the packages of an environment; none outside of conda."""
    found = []
    for name, version, _, document in documents(prefix):
        folders = frozenset(map(os.fsdecode, _METADATA.findall(_data(document))))
        found.append(CondaPackage(name, version, document, folders))
    return found


def replaced(packages: Iterable[CondaPackage]) -> Iterator[ReplacedPackage]:
    """Yield the packages of which ``site-packages`` has metadata that conda does not list."""
    owners = {folder: package for package in packages for folder in package.metadata}
    there = _names_in(sysconfig.get_path("purelib"))
    pips = dict(_name_and_version(f) for f in there if f.endswith("-info") and f not in owners)
    for folder, package in owners.items():
        name, _ = _name_and_version(folder)
        if name in pips:
            yield ReplacedPackage(package, name, pips[name], folder in there)


def requiring_another(one: ReplacedPackage, packages: Iterable[CondaPackage]) -> Iterator[str]:
    """Yield what of conda's requires another release than pip has installed, and which."""
    name = one.package.name
    for package in packages:
        asks = _REQUIREMENT.findall(_data(package.document)) if package is not one.package else ()
        for wanted in (wanted for asked, wanted in asks if asked == name.encode()):
            versions = wanted.decode("utf-8", "replace")
            if _is_outside(one.version, versions):
                yield f"{package.name} {package.version} requires {name} {versions}"


def _is_outside(version: str, wanted: str) -> bool:
    try:
        return not in_range(version, wanted)
    except ValueError:  # of conda's own form: 1.26.* without a sign, alternatives
        return False


def _name_and_version(folder: str) -> tuple[str, str]:
    name, _, version = folder.rpartition(".")[0].partition("-")
    return key_of(name), version


def _names_in(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _data(path: str) -> bytes:
    try:
        return read_bytes(path, LARGEST)
    except (OSError, ValueError):
        return b""
