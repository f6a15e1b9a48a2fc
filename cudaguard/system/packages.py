"""Installed distributions and their shared objects, by metadata and files alone.

Guarded programs need none of it; see `cudaguard.system.facts` for what they ask.
"""

from __future__ import annotations

import os
import re

from cudaguard.elf.forecast import wants_executable_stack
from cudaguard.elf.reader import ElfFile
from cudaguard.files import names_in, program_errors, standard_library, text_in
from cudaguard.model import TYPE_CHECKING, NamedTuple, lazy
from cudaguard.system import INSTALLED, LOCAL, STANDARD, origin_of_file
from cudaguard.system.facts import Facts, bounded, fields_of, searched

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence
    from typing import Any

_MOST_FILES = 50_000  # that are looked through in the folder of an editable install
_LONGEST = 1000  # characters of a name and a version; they are shown, and keys of documents
_NOT_SEARCHED = {"node_modules", "__pycache__", "site-packages"}


class Distribution(NamedTuple):
    """An installed distribution."""

    name: str  # as its metadata spells it
    key: str  # the same in the form in which names are compared
    version: str
    requires: tuple[str, ...]  # what it requires, as it spells it
    metadata: str  # the folder with its metadata
    folder: str  # what its files are named relative to
    source: str  # the folder of an editable install, else empty
    record: str  # its files with their hashes, as ``path,hash,size`` lines; empty if not listed

    def required(self) -> list[str]:
        """Return what it requires; what an extra asks for does not count."""
        parts = (said.partition(";") for said in self.requires)
        return [said.strip() for said, _, when in parts if "extra==" not in when.replace(" ", "")]


class SharedFile(NamedTuple):
    """A shared object of a distribution."""

    path: str
    dist: str  # the name of the distribution
    needed: tuple[str, ...]  # the libraries it needs
    soname: str  # the name by which others need it
    wants_stack: bool  # True if it asks for an executable stack


def key_of(name: str) -> str:
    """Return the form in which names of distributions are compared (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def metadata_library() -> Any:
    """Return importlib_metadata, which is the same for every Python, or else Python's own.

    For the processes of our commands only: importing it takes the place of Python's own finder of
    distributions, which a program of a user must keep.
    """
    try:
        import importlib_metadata as metadata
    except ImportError:
        from importlib import metadata  # type: ignore[no-redef]  # same functions
    return metadata


class Installed(NamedTuple):
    """The distributions on ``sys.path``."""

    # The distributions; of two of one name the first on the path, as for ``import``
    found: list[Distribution]
    hidden: list[Distribution]  # the others, in further folders of the path
    unreadable: list[tuple[str, str]]  # (folder of the metadata, why they cannot be used)


def installed() -> Installed:
    """Return what is installed, what of it is hidden, and what cannot be read."""
    found: dict[str, Distribution] = {}
    hidden: list[Distribution] = []
    unreadable = []
    for entry in metadata_library().distributions(path=searched()):
        try:
            dist = _read(bounded(entry))
        except Exception as error:  # whatever the file contains, and whoever provides it
            unreadable.append((_place(entry), f"{type(error).__name__}: {error}"))
            continue
        first = found.setdefault(dist.key, dist)
        if os.path.realpath(first.folder) != os.path.realpath(dist.folder):
            hidden.append(dist)
    return Installed(list(found.values()), hidden, unreadable)


def _read(entry: Any) -> Distribution:
    # Not entry.metadata: to have all of it parsed took most of the time.
    text = next(filter(None, map(entry.read_text, ("METADATA", "PKG-INFO", ""))), "")
    said = fields_of(text)
    name, version = (said.get(field, [""])[0] for field in ("name", "version"))
    if not name or not version:
        raise ValueError(f"it has no {'version' if name else 'name'}")
    if len(name) + len(version) > _LONGEST:
        raise ValueError(f"its name and version have {len(name) + len(version)} characters")
    place = _place(entry)
    is_egg = place.endswith((".egg-info", "EGG-INFO"))  # which has a file for what it requires
    return Distribution(
        name,
        key_of(name),
        version,
        tuple(said.get("requires-dist") or (is_egg and entry.requires) or ()),
        place,
        str(entry.locate_file("")) or ".",
        _source(entry.read_text("direct_url.json")),
        entry.read_text("RECORD") or "",
    )


def _place(entry: Any) -> str:
    return str(getattr(entry, "_path", "") or entry.locate_file(""))


def _source(direct_url: str | None) -> str:
    if not direct_url:
        return ""
    import json
    from urllib.parse import unquote, urlsplit

    said = json.loads(direct_url)
    url = urlsplit(str(said.get("url", "")))
    is_editable = url.scheme == "file" and said.get("dir_info", {}).get("editable")
    return unquote(url.path) if is_editable else ""


def listed_files(
    dist: Distribution, part: str = "", starts: Container[str] | None = None
) -> Iterator[tuple[str, str, str]]:
    """Yield (path, hash, size) of the files that a distribution lists, as it spells them.

    Lines without the `part`, or with other `starts` up to a comma, may be left out.
    """
    for line in dist.record.splitlines() if part in dist.record else ():
        if part not in line or (starts is not None and line.partition(",")[0] not in starts):
            continue
        path, *rest = line.rsplit(",", 2)  # whatever the name holds: behind it are hash and size
        if path[:1] == '"':
            path = path[1:-1].replace('""', '"')
        if path:
            yield path, rest[0] if rest else "", rest[1] if rest[1:] else ""


def shared_files(dists: Iterable[Distribution]) -> list[SharedFile]:
    """Return the shared objects of distributions that are there."""
    found: dict[str, SharedFile] = {}
    for dist in dists:
        for path in _shared_objects(dist):
            if path not in found:
                try:
                    with ElfFile(path) as file:
                        stack = wants_executable_stack(file.segments)
                        names = ((), "") if file.is_truncated else (file.needed, file.soname)
                        found[path] = SharedFile(path, dist.name, *names, stack)
                except OSError:
                    if os.path.isfile(path):
                        found[path] = SharedFile(path, dist.name, (), "", False)
    return list(found.values())


def _shared_objects(dist: Distribution) -> Iterator[str]:
    for name, *_ in listed_files(dist, ".so"):
        if is_shared_object(name):
            yield os.path.normpath(os.path.join(dist.folder, name))
    count = 0
    for root, folders, names in os.walk(dist.source) if dist.source else ():
        folders[:] = [f for f in folders if f not in _NOT_SEARCHED and not f.startswith(".")]
        count += len(names)
        if count > _MOST_FILES:
            return
        yield from (os.path.join(root, name) for name in names if is_shared_object(name))


def is_shared_object(path: str) -> bool:
    """Return True if a file is a shared object, judged by its name."""
    name = os.path.basename(path)
    # One of OpenSSL's is called libssl.so.1.1.1k.
    return name.endswith(".so") or re.search(r"\.so(?:\.\d\w*)+$", name) is not None


# As conda, mamba and pixi name the document of a package: name, version, build.
_DOCUMENT = re.compile(r"(.+)-([^-]+)-([^-]+)\.json")


def documents(prefix: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, version, build and document of the packages of an environment of conda's."""
    folder = os.path.join(prefix, "conda-meta")
    for file in names_in(folder):
        if match := _DOCUMENT.fullmatch(file):
            yield match[1], match[2], match[3], os.path.join(folder, file)


# --- Where an import name comes from: Python itself, an installed package, the user's files -------


def origin_of(name: str, path: Sequence[str]) -> str:
    """Return `STANDARD`, `INSTALLED` or `LOCAL`; nothing is imported for it.

    A compiled module counts as installed wherever it lies: what it loads is its own.
    """
    from importlib.machinery import PathFinder

    top = name.partition(".")[0]
    if top in standard_library():
        return STANDARD
    try:
        spec = PathFinder.find_spec(top, list(path))
    except program_errors(Exception):  # what lies on the path is not ours
        spec = None
    if spec is None:  # a finder of its own, as editable installs have, or nothing at all
        return INSTALLED
    file = spec.origin or next(iter(spec.submodule_search_locations or ()), "")
    origin = origin_of_file(file)
    is_compiled = not (file.endswith(".py") or os.path.isdir(file))
    return INSTALLED if origin == LOCAL and is_compiled else origin


def packages_distributions(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return top-level package -> (distribution, version), for those that are installed."""
    wanted = {name.partition(".")[0] for name in names}
    found: dict[str, tuple[str, str]] = {}
    for dist in installed().found:
        tops = text_in(dist.metadata, "top_level.txt").split()
        paths = listed_files(dist) if not tops else ()
        tops += (path.partition("/")[0].partition(".")[0] for path, *_ in paths)
        for top in wanted.intersection(tops):
            found.setdefault(top, (dist.name, dist.version))
    return found


# --- What several checks look at, each thing looked at once ---------------------------------------


class Site:
    """This environment.

    `limit`: seconds for one child.
    """

    def __init__(self, limit: float = 60.0) -> None:
        self.limit = limit
        self.environ = dict(os.environ)
        self.facts = Facts()

    @lazy
    def installed(self) -> Installed:
        """Installed distributions, those hidden by others, and those that cannot be read."""
        return installed()

    @lazy
    def versions(self) -> dict[str, str]:
        """The versions of what is installed, by the form of names that are compared."""
        return {dist.key: dist.version for dist in self.installed.found}

    def version(self, name: str) -> str | None:
        """Return the version of a distribution, None if it is not installed."""
        return self.versions.get(key_of(name))

    @lazy
    def shared_files(self) -> list[SharedFile]:
        """The shared objects of all that is installed."""
        return shared_files(self.installed.found)
