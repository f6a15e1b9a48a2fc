"""Wheels that are not installed: whether they fit here, and their shared objects, unpacked."""

from __future__ import annotations

import os
import platform
import re
import shutil
import stat
import sysconfig
from typing import NamedTuple

from cudaguard.files import open_to_read, open_to_write
from cudaguard.system.distributions import is_shared_object
from cudaguard.tools.check_extension import messages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from zipfile import ZipFile, ZipInfo

    from packaging.tags import Tag

    from cudaguard.elf.extension_check import ExtensionCheck

_MOST_MEMBERS = 1 << 17
_MOST_BYTES = 1 << 33  # a CUDA build of torch has 4 GB of libraries
_MOST_OF_DISK = 0.8  # of what is free
_CHUNK = 1 << 20
_INSTALLED_AT_TOP = re.compile(r"[^/]+\.data/(?:platlib|purelib)/")
_ELSEWHERE = re.compile(r"[^/]+\.data/")  # scripts, headers, data
_GLIBC = re.compile(r"manylinux_(\d+)_(\d+)_(\w+)")
_OLD_NAMES = {"manylinux1": "manylinux_2_5", "manylinux2010": "manylinux_2_12",
              "manylinux2014": "manylinux_2_17"}  # fmt: skip
_TORCH_VERSION = "torch/version.py"


class WheelError(Exception):
    """A file that is no wheel, or one that is not unpacked; the text says why."""


class Unpacked(NamedTuple):
    """The shared objects of a wheel.

    Args:
        root: The folder that stands for site-packages.
        files: Their paths, below it.
    """

    root: str
    files: tuple[str, ...]


def is_wheel(path: str) -> bool:
    """Return True for the name of a wheel."""
    return path.endswith(".whl")


# --- does it fit? --------------------------------------------------------------------------------


def misfit(path: str) -> ExtensionCheck | None:
    """Return why pip would refuse to install a wheel here, by its name; None if it would not."""
    from packaging import tags

    words = os.path.basename(path)[: -len(".whl")].split("-")
    if len(words) not in (5, 6):  # renamed: then its files tell
        return None
    its = tags.parse_tag("-".join(words[-3:]))
    here = list(tags.sys_tags())
    if not its.isdisjoint(here):
        return None
    platforms = {tag.platform for tag in here}
    if any(tag.platform in platforms for tag in its):
        return messages.for_another_python(path, words[-3], words[-2])
    newer = _needs_newer_glibc(its)
    if newer:
        return messages.for_newer_glibc(path, newer, _own_glibc())
    return messages.for_another_platform(path, words[-1], sysconfig.get_platform())


def _needs_newer_glibc(its: Iterable[Tag]) -> str:
    """Return the release of glibc that a wheel for this kind of machine asks for, else nothing."""
    own = platform.machine()
    for tag in its:
        name, _, machine = tag.platform.partition("_")
        text = f"{_OLD_NAMES[name]}_{machine}" if name in _OLD_NAMES else tag.platform
        match = _GLIBC.fullmatch(text)
        if match and match[3] == own and _own_glibc():
            return f"{match[1]}.{match[2]}"
    return ""


def _own_glibc() -> str:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").rpartition(" ")[2]
    except (AttributeError, OSError, ValueError):
        return ""


# --- unpacking -----------------------------------------------------------------------------------


def unpack(path: str, folder: str) -> Unpacked:
    """Unpack the shared objects of a wheel into an empty folder, and those of torch's version.

    Args:
        path: The wheel.
        folder: Where to.

    Raises:
        WheelError: It is no wheel, has members that point elsewhere, or is too large.
        OSError: It cannot be read, or not be written there.
    """
    import zipfile

    try:
        with os.fdopen(open_to_read(path), "rb") as file, zipfile.ZipFile(file) as archive:
            members = list(_members(archive))
            _refuse_too_much(members, folder)
            for target, member in members:
                _copy(archive, member, os.path.join(folder, target))
    except (WheelError, OSError):
        raise
    except Exception as error:  # each way to compress has errors of its own
        raise WheelError(messages.broken_wheel(str(error) or type(error).__name__)) from error
    files = [os.path.join(folder, target) for target, _ in members if is_shared_object(target)]
    return Unpacked(folder, tuple(sorted(files)))


def _members(archive: ZipFile) -> Iterator[tuple[str, ZipInfo]]:
    """Yield what is unpacked, each with its place in site-packages."""
    infos = archive.infolist()
    if len(infos) > _MOST_MEMBERS:
        raise WheelError(messages.too_many(len(infos), _MOST_MEMBERS))
    seen = set()
    for member in infos:
        name = member.filename
        if name.startswith("/") or ".." in name.split("/") or "\\" in name:
            raise WheelError(messages.points_elsewhere(name))
        if stat.S_ISLNK(member.external_attr >> 16):
            raise WheelError(messages.is_link(name))
        at_top = _INSTALLED_AT_TOP.match(name)
        target = name[at_top.end() :] if at_top else name
        is_bundled = os.path.dirname(target).endswith(".libs")  # whatever it is called
        is_wanted = is_shared_object(target) or is_bundled or target == _TORCH_VERSION
        if member.is_dir() or not is_wanted or _ELSEWHERE.match(target):
            continue
        if target in seen:
            raise WheelError(messages.is_there_twice(name))
        seen.add(target)
        yield target, member


def _refuse_too_much(members: Sequence[tuple[str, ZipInfo]], folder: str) -> None:
    size = sum(member.file_size for _, member in members)
    most = min(_MOST_BYTES, int(shutil.disk_usage(folder).free * _MOST_OF_DISK))
    if size > most:
        raise WheelError(messages.too_large(size, most))


def _copy(archive: ZipFile, member: ZipInfo, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    # No more than its header says: zipfile reads to there and compares the checksum.
    with archive.open(member) as source:
        descriptor = open_to_write(target, os.O_CREAT | os.O_EXCL)
        with os.fdopen(descriptor, "wb") as file:
            shutil.copyfileobj(source, file, _CHUNK)


# --- as installed --------------------------------------------------------------------------------


def link_neighbors(root: str, sites: Iterable[str], own: Iterable[str] = ()) -> None:
    """Put links to what is installed beside what a wheel has, as an installation would have it.

    What a wheel needs may lie with its neighbors: ``$ORIGIN/../nvidia/cudnn/lib``.

    Args:
        root: The folder with what is unpacked.
        sites: Folders such as site-packages, the first one counts.
        own: What is installed of the same distribution, relative to those: it is left out.
    """
    hidden = set()
    for name in own:
        while name:
            hidden.add(name)
            name = os.path.dirname(name)  # noqa: PLW2901
    for site in sites:
        _link(site, root, "", hidden)


def _link(site: str, root: str, place: str, hidden: set[str]) -> None:
    try:
        entries = list(os.scandir(os.path.join(site, place)))
    except OSError:
        return
    for entry in entries:
        name = os.path.join(place, entry.name)
        target = os.path.join(root, name)
        if os.path.isdir(target) and not os.path.islink(target):
            if entry.is_dir():
                _link(site, root, name, hidden)
        elif not os.path.lexists(target) and name not in hidden:
            os.symlink(os.path.abspath(entry.path), target)
