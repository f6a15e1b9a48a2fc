"""The words of ``cudaguard check-extension``."""

from __future__ import annotations

import os

from cudaguard.elf.extension_check import ExtensionCheck

EXPECTED = "expected a file, a folder, a wheel, or the name of an installed distribution"
NOT_FOUND = "no extensions or libraries found"
BAD_GPU = "--gpu: got {!r}, expected a compute capability such as sm_90 or 9.0"
_GB = 1 << 30


def for_another_python(path: str, python: str, abi: str) -> ExtensionCheck:
    """A wheel that is for another Python."""
    import sys

    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return ExtensionCheck(
        False,
        path,
        "python-abi",
        f"{os.path.basename(path)} is for another Python than this {own}: its name says "
        f"{python}-{abi}, and pip refuses to install it",
        remedy=f"get or build the wheel for Python {own}, or run cudaguard with that other Python",
    )


def for_another_platform(path: str, platform: str, own: str) -> ExtensionCheck:
    """A wheel that is for another system or processor."""
    return ExtensionCheck(
        False,
        path,
        "wrong-machine",
        f"{os.path.basename(path)} was built for another machine: its name says {platform}, and "
        f"this is {own}",
        remedy="get the wheel for this machine, or build it here",
    )


def for_newer_glibc(path: str, wanted: str, own: str) -> ExtensionCheck:
    """A wheel that is for newer systems."""
    return ExtensionCheck(
        False,
        path,
        "symbol-version",
        f"{os.path.basename(path)} is for systems with glibc {wanted} or later, and this has "
        f"glibc {own}: pip refuses to install it",
        remedy="use a newer system or container image, an older release of the wheel, or build it "
        "here",
    )


def broken_wheel(why: str) -> str:
    """A file that cannot be unpacked."""
    return f"it is no wheel, or a damaged one: {why}"


def too_many(count: int, most: int) -> str:
    """A wheel with very many members."""
    return f"it has {count} members, more than the {most} that are unpacked"


def too_large(size: int, most: int) -> str:
    """A wheel that unpacks to more than there is room for."""
    return (
        f"its libraries take {size / _GB:.1f} GB unpacked, and at most {most / _GB:.1f} GB are "
        "used in the temporary folder; set TMPDIR to a larger one, or install the wheel and give "
        "its name"
    )


def points_elsewhere(name: str) -> str:
    """A member that would be written outside of the folder."""
    return f"its member {name!r} points outside of it, and nothing is unpacked"


def is_link(name: str) -> str:
    """A member that is a link."""
    return f"its member {name!r} is a link, and nothing is unpacked"


def is_there_twice(name: str) -> str:
    """Two members that are one file."""
    return f"its member {name!r} is there twice, and nothing is unpacked"


def no_torch(path: str) -> str:
    """A path that leads to no torch."""
    return (
        f"--torch: there is no torch at {path}; expected its folder, a site-packages folder, an "
        "environment, its interpreter, or a wheel of torch"
    )


def several_torches(path: str, folders: list[str]) -> str:
    """An environment with several Pythons."""
    return f"--torch: {path} has more than one torch, name one of: {', '.join(folders)}"


def torch_of_another_python(folder: str, version: str, own: str) -> str:
    """A torch that this Python could not import."""
    return (
        f"--torch: {folder} is for Python {version}, this is Python {own}: run cudaguard with "
        f"Python {version}"
    )
