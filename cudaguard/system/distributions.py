"""What is installed on ``sys.path``, and the shared objects of it: by metadata and files alone."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from cudaguard.elf.reader import read_elf
from cudaguard.system.facts import bounded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

_MOST_FILES = 50_000  # that are looked through in the folder of an editable install
_LONGEST = 1000  # characters of a name and a version; they are shown, and keys of documents
_NOT_SEARCHED = {"node_modules", "__pycache__", "site-packages"}


class Distribution(NamedTuple):
    """An installed distribution.

    Args:
        name: As its metadata spells it.
        key: The same in the form in which names are compared.
        version: Its version.
        requires: What it requires, as it spells it.
        metadata: The folder with its metadata.
        folder: What its files are named relative to.
        source: The folder of an editable install, else empty.
        record: Its files with their hashes, as ``path,hash,size`` lines; empty if not listed.
    """

    name: str
    key: str
    version: str
    requires: tuple[str, ...]
    metadata: str
    folder: str
    source: str
    record: str


class Unreadable(NamedTuple):
    """A distribution whose metadata cannot be used.

    Args:
        path: The folder with its metadata.
        why: What is wrong with it.
    """

    path: str
    why: str


class SharedFile(NamedTuple):
    """A shared object of a distribution.

    Args:
        path: The file.
        dist: The name of the distribution.
        needed: The libraries it needs.
        soname: The name by which others need it.
    """

    path: str
    dist: str
    needed: tuple[str, ...]
    soname: str


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
    """What is on ``sys.path``.

    Args:
        found: The distributions; of two of one name the first on the path, as for ``import``.
        hidden: The others, in further folders of the path.
        unreadable: Those whose metadata cannot be used.
    """

    found: list[Distribution]
    hidden: list[Distribution]
    unreadable: list[Unreadable]


def installed() -> Installed:
    """Return what is installed, what of it is hidden, and what cannot be read."""
    found: dict[str, Distribution] = {}
    hidden: list[Distribution] = []
    unreadable = []
    for one in metadata_library().distributions():
        try:
            dist = _read(bounded(one))
        except Exception as error:  # whatever the file contains, and whoever provides it
            unreadable.append(Unreadable(_place(one), f"{type(error).__name__}: {error}"))
            continue
        first = found.setdefault(dist.key, dist)
        if os.path.realpath(first.folder) != os.path.realpath(dist.folder):
            hidden.append(dist)
    return Installed(list(found.values()), hidden, unreadable)


def _read(one: Any) -> Distribution:
    # Whether a missing line is None or an error differs among releases; get() knows no errors.
    said = one.metadata  # is read again each time
    name, version = said.get("Name"), said.get("Version")
    if not name or not version:
        raise ValueError(f"it has no {'version' if name else 'name'}")
    if len(name) + len(version) > _LONGEST:
        raise ValueError(f"its name and version have {len(name) + len(version)} characters")
    return Distribution(
        str(name),
        key_of(name),
        str(version),
        tuple(said.get_all("Requires-Dist") or _required_by_egg(one)),
        _place(one),
        str(one.locate_file("")) or ".",
        _source(one.read_text("direct_url.json")),
        one.read_text("RECORD") or "",
    )


def _required_by_egg(one: Any) -> Iterable[str]:
    """Return what a distribution in the older form requires, which has a file for it."""
    return (one.requires or ()) if _place(one).endswith((".egg-info", "EGG-INFO")) else ()


def _place(one: Any) -> str:
    return str(getattr(one, "_path", "") or one.locate_file(""))


def _source(direct_url: str | None) -> str:
    if not direct_url:
        return ""
    import json
    from urllib.parse import unquote, urlsplit

    said = json.loads(direct_url)
    url = urlsplit(str(said.get("url", "")))
    is_editable = url.scheme == "file" and said.get("dir_info", {}).get("editable")
    return unquote(url.path) if is_editable else ""


def listed_files(dist: Distribution) -> Iterator[tuple[str, str]]:
    """Yield (path, hash) of the files that a distribution lists, as it spells them."""
    for line in dist.record.splitlines():
        path, *rest = line.rsplit(",", 2)  # whatever the name holds: behind it are hash and size
        if path[:1] == '"':
            path = path[1:-1].replace('""', '"')
        if path:
            yield path, rest[0] if rest else ""


def shared_files(dists: Iterable[Distribution]) -> list[SharedFile]:
    """Return the shared objects of distributions that are there."""
    found: dict[str, SharedFile] = {}
    for dist in dists:
        for path in _shared_objects(dist):
            if path not in found and os.path.isfile(path):
                elf = read_elf(path)
                found[path] = SharedFile(path, dist.name, elf.needed, elf.soname)
    return list(found.values())


def _shared_objects(dist: Distribution) -> Iterator[str]:
    for name, _ in listed_files(dist):
        if ".so" in name and is_shared_object(name):
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
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for file in names:
        match = _DOCUMENT.fullmatch(file)
        if match:
            yield match[1], match[2], match[3], os.path.join(folder, file)
