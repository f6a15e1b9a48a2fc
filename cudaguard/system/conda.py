"""What conda, mamba or pixi installed in this environment, as ``conda-meta`` lists it.

It has one document per package, with all of its files: hundreds, of tens of megabytes together.
They are searched as bytes, and parsed only where one has something of interest.

pip and conda do not know of one another. A package that conda compiled for numpy 1 stays where pip
puts numpy 2, and conda later writes its own files over those of pip.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from typing import NamedTuple

from cudaguard.files import LARGEST, read_bytes
from cudaguard.system.distributions import is_shared_object, listed_files
from cudaguard.system.runtimes import stem_of
from cudaguard.system.versions import in_range

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from cudaguard.system.distributions import Distribution

    Hashes = dict[str, frozenset[str]]

# As conda names a document: name, version, build.
_DOCUMENT = re.compile(r"(.+)-([^-]+)-([^-]+)\.json")
_ABI = "t" if "t" in getattr(sys, "abiflags", "") else ""  # free-threaded builds have a folder
PACKAGES = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}{_ABI}/site-packages/"
# Packages for any Python may be listed as they are packed, without the folder of this one.
_PACKED = "site-packages/"
_PATHS = re.compile(
    rf'"(?:(?:{re.escape(PACKAGES[: -len(_PACKED)])})?{_PACKED}([^/"\\]+)'
    r'|(lib/lib[^/"\\]+\.so[^/"\\]*)")'.encode()
)
# What a package requires that uses CUDA's libraries, or has them.
_OF_CUDA = re.compile(rb'"(?:cuda-version|cudatoolkit|cuda-cudart|cudnn|nccl|libcu[a-z]+)[ "]')
_SHARED = frozenset({"__pycache__"})  # by all modules that are a single file
_MOST_FILES, _LARGEST = 40, 1 << 20  # that are read to see whose they are, and bytes of one
_HASHES = ("sha256", "sha256_in_prefix")  # as packed; as installed, with the folder's name in it


class CondaPackage(NamedTuple):
    """A package of conda's.

    Args:
        name: Its name, which need not be that of a wheel: ``pytorch`` has the module ``torch``.
        version: Its version.
        document: The file that describes it.
        modules: What it has in ``site-packages``: names of folders and files.
        libraries: Its shared libraries, as ``lib/libcudart.so.12``.
    """

    name: str
    version: str
    document: str
    modules: frozenset[str]
    libraries: tuple[str, ...]


class Pair(NamedTuple):
    """A package of conda's and a distribution of pip's that have files of the same names.

    Args:
        package: Conda's.
        dist: The other.
        installer: Who installed it: ``pip`` or ``uv``; may be empty.
        condas: Files that are there as conda installed them, of those that were read.
        pips: The same of pip.
        others: Folders with metadata of conda's package that are there besides.
        is_native: True if shared objects are among the files.
    """

    package: CondaPackage
    dist: Distribution
    installer: str
    condas: tuple[str, ...]
    pips: tuple[str, ...]
    others: tuple[str, ...]
    is_native: bool

    @property
    def is_mixed(self) -> bool:
        """True if both are there, and not one in the place of the other."""
        return bool(self.condas or self.others)


def documents(prefix: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, version, build and document of the packages of an environment.

    Args:
        prefix: The folder of the environment.
    """
    folder = os.path.join(prefix, "conda-meta")
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for file in names:
        match = _DOCUMENT.fullmatch(file)
        if match:
            yield match[1], match[2], match[3], os.path.join(folder, file)


def conda_packages(prefix: str) -> list[CondaPackage]:
    """Return the packages of an environment; none outside of conda.

    Args:
        prefix: The folder of the environment.
    """
    found = []
    for name, version, _, document in documents(prefix):
        # Each path stands there twice. What follows has hashes, and is four times as long.
        listed, _, rest = _data(document).partition(b'"paths_data"')
        modules: set[bytes] = set()
        libraries: dict[bytes, None] = {}
        for module, library in _PATHS.findall(listed if b'"files"' in listed else rest):
            if module:
                modules.add(module)
            else:
                libraries[library] = None
        found.append(
            CondaPackage(
                name,
                version,
                document,
                frozenset(one.decode("utf-8", "replace") for one in modules),
                tuple(one.decode("utf-8", "replace") for one in libraries),
            )
        )
    return found


def read_document(package: CondaPackage) -> dict[str, Any]:
    """Return what a document says, empty if it cannot be used."""
    try:
        said = json.loads(_data(package.document))
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _data(path: str, most: int = LARGEST) -> bytes:
    try:
        return read_bytes(path, most)
    except (OSError, ValueError):
        return b""


def hashes_of(said: dict[str, Any]) -> Hashes:
    """Return the files of a package in ``site-packages`` -> their SHA-256, as packed and installed.

    Args:
        said: Its document.
    """
    data = said.get("paths_data")
    listed = data.get("paths") if isinstance(data, dict) else None
    found = {}
    for one in listed if isinstance(listed, list) else ():
        path = one.get("_path") if isinstance(one, dict) else None
        if isinstance(path, str):
            for start in (PACKAGES, _PACKED):
                if path.startswith(start):
                    hashes = (one.get(name) for name in _HASHES)
                    found[path[len(start) :]] = frozenset(h for h in hashes if isinstance(h, str))
                    break
    return found


def required_by(said: dict[str, Any]) -> list[tuple[str, str]]:
    """Return (name, versions) of what a package of conda's requires.

    Args:
        said: Its document. It has ``numpy >=1.26.4,<2.0a0``; names and builds are left out.
    """
    listed = said.get("depends")
    texts = [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else []
    return [(words[0], words[1]) for words in map(str.split, texts) if len(words) > 1]


def is_of_conda(dist: Distribution, packages: Iterable[CondaPackage]) -> bool:
    """Return True for a distribution that conda installed, by the folder of its metadata."""
    folder = os.path.basename(dist.metadata)
    return any(folder in package.modules for package in packages)


def users_of_cuda(packages: Iterable[CondaPackage]) -> frozenset[str]:
    """Return the names of libraries of conda's that may need those of CUDA, as ``libcudf.so``.

    Args:
        packages: What conda installed.
    """
    return frozenset(
        os.path.basename(path)
        for package in packages
        if package.libraries and _OF_CUDA.search(_data(package.document))
        for path in package.libraries
    )


def owners(packages: Iterable[CondaPackage]) -> dict[str, str]:
    """Return the libraries of the field that conda installed, links resolved -> whose they are.

    Args:
        packages: What conda installed.
    """
    return {
        os.path.realpath(os.path.join(sys.prefix, path)): f"{package.name} {package.version}"
        for package in packages
        for path in package.libraries
        if stem_of(os.path.basename(path))
    }


def pairs(dists: Iterable[Distribution], packages: Sequence[CondaPackage]) -> Iterator[Pair]:
    """Yield packages of conda's with files that pip or uv put into their places, or beside them.

    Args:
        dists: All that is installed.
        packages: What conda installed.
    """
    home = os.path.realpath(os.path.join(sys.prefix, PACKAGES))
    hashes: dict[str, Hashes] = {}
    for dist in dists if packages else ():
        installer = _installer(dist)
        if installer == "conda" or os.path.realpath(dist.folder) != home:
            continue
        files = {path: _hex(digest) for path, digest in listed_files(dist) if path[:1] not in "./"}
        modules = {path.partition("/")[0] for path in files} - _SHARED
        for package in packages:
            if modules.isdisjoint(package.modules):
                continue
            if package.document not in hashes:
                hashes[package.document] = hashes_of(read_document(package))
            pair = _compared(package, dist, installer, hashes[package.document], files)
            if pair is not None:
                yield pair


def _compared(
    package: CondaPackage, dist: Distribution, installer: str, theirs: Hashes, files: dict[str, str]
) -> Pair | None:
    """Return what is there of two packages that list the same files, None if all is well."""
    info = os.path.basename(dist.metadata)
    if _sha256(f"{dist.metadata}/RECORD") in theirs.get(f"{info}/RECORD", ()):
        return None  # conda installed it, whatever its metadata say
    differing = [
        path
        for path, digest in files.items()
        if digest and theirs.get(path) and digest not in theirs[path]
        and not path.startswith(f"{info}/") and not path.endswith("/__init__.py")
    ]  # fmt: skip
    condas, pips = [], []
    for path in differing[:: len(differing) // _MOST_FILES + 1]:
        digest = _sha256(os.path.join(dist.folder, path))
        if digest == files[path]:
            pips.append(path)
        elif digest in theirs[path]:
            condas.append(path)
    others = [
        name
        for name in package.modules
        if name.endswith(".dist-info") and name != info
        and os.path.isdir(os.path.join(dist.folder, name))
    ]  # fmt: skip
    if not condas and not pips:
        return None
    is_native = any(map(is_shared_object, differing))
    return Pair(package, dist, installer, tuple(condas), tuple(pips), tuple(others), is_native)


def unmet_by(
    replaced: Iterable[Pair], packages: Iterable[CondaPackage]
) -> Iterator[tuple[CondaPackage, str, Pair]]:
    """Yield who of conda's was made for another release than pip put there, and for which.

    Args:
        replaced: Packages in the place of which pip put a distribution.
        packages: What conda installed.
    """
    by_name = {pair.package.name: pair for pair in replaced}
    names = tuple(f'"{name} '.encode() for name in by_name)
    for package in packages if by_name else ():
        if not any(name in _data(package.document) for name in names):
            continue
        for name, wanted in required_by(read_document(package)):
            pair = by_name.get(name)
            if pair is not None and _is_unmet(pair.dist.version, wanted):
                yield package, wanted, pair


def _is_unmet(version: str, wanted: str) -> bool:
    """Return True if a version is certainly outside of what conda requires."""
    try:
        return not in_range(version, wanted)
    except ValueError:  # of conda's own form: 1.26.* without a sign, alternatives
        return False


def gone(packages: Iterable[CondaPackage]) -> Iterator[tuple[CondaPackage, list[str]]]:
    """Yield packages with their libraries of the field, or all their modules, if those are gone.

    Args:
        packages: What conda installed.
    """
    try:
        there = set(os.listdir(os.path.join(sys.prefix, PACKAGES)))
    except OSError:
        there = set()
    for package in packages:
        lost = [
            path
            for path in package.libraries
            if stem_of(os.path.basename(path))
            and not os.path.lexists(os.path.join(sys.prefix, path))
        ]
        if not lost and there:  # what was uninstalled may have left its metadata
            modules = sorted(m for m in package.modules - _SHARED if not m.endswith("-info"))
            lost = modules if there.isdisjoint(modules) else []
        if lost:
            yield package, lost


def _installer(dist: Distribution) -> str:
    data = _data(os.path.join(dist.metadata, "INSTALLER"), 1 << 10)
    return data.decode("utf-8", "replace").strip()


def _sha256(path: str) -> str:
    data = _data(path, _LARGEST)
    return hashlib.sha256(data).hexdigest() if data else ""


def _hex(digest: str) -> str:
    """Return a hash of RECORD in the form of conda's, empty if it is another kind of hash."""
    import base64

    kind, _, text = digest.partition("=")
    try:
        return base64.urlsafe_b64decode(f"{text}==").hex() if kind == "sha256" else ""
    except ValueError:
        return ""
