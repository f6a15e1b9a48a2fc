"""The wording of libraries that are there twice."""

from __future__ import annotations

import os
import shlex
from typing import NamedTuple

from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.system.runtimes import Runtime


LIBRARIES = "CG903"
_ONE = "install releases that use the same wheel"


class Served(NamedTuple):
    """A file that packages would get for a library.

    Args:
        path: The file, links resolved.
        askers: Distributions that would get it -> one of their files that asks.
        version: Its version, empty if names do not tell.
        dist: The distribution that contains it, empty if none does.
        conda: The package of conda's that contains it, with its version; empty if none does.
    """

    path: str
    askers: dict[str, str]
    version: tuple[int, ...]
    dist: str
    conda: str = ""


def two_files(
    name: str, older: Served, newer: Served, runtime: Runtime, *, is_fault: bool
) -> Finding:
    """One name that leads to different files, depending on who asks first."""
    first, then = next(iter(older.askers)), next(iter(newer.askers))
    is_known = bool(older.version and newer.version)
    source = "install both with conda or both with pip" if older.conda or newer.conda else _ONE
    return Finding(
        LIBRARIES,
        f"{first} and {then} would load different files of {name} ({runtime.title}); the first "
        "import decides for both.",
        severity="warning" if is_fault else "info",
        evidence=(_told(older), _told(newer)),
        consequence=f"with {first} imported first, {then} gets the older one: {runtime.danger}."
        if is_fault
        else "both get the older one if it is loaded first."
        if is_known
        else "their versions are unknown, so cudaguard cannot tell which is older.",
        remedy=f"import {then} before {first}, or {source}" if is_known else source,
        command=f"cudaguard doctor --orders {_module(first)},{_module(then)}",
    )


def two_sources(name: str, served: Served, wheel: Served, runtime: Runtime) -> Finding:
    """A library of conda's that packages get, beside another release in a wheel.

    Args:
        name: The library.
        served: Conda's.
        wheel: The one of NVIDIA's wheel, which nothing that is installed names.
        runtime: What is known of the library.
    """
    return Finding(
        LIBRARIES,
        f"conda and pip each installed {name} ({runtime.title}); the first one loaded decides for "
        "all that ask by name.",
        severity="info",
        evidence=(_told(served), f"{_told(wheel)}, in {wheel.dist}"),
        consequence=f"a package that opens the library of {wheel.dist} by name may get conda's.",
        remedy="install what uses it with conda, or all of it with pip",
        command=f"cudaguard trace -c 'import {_module(next(iter(served.askers)))}'",
    )


def astray(
    name: str, served: Served, meant: Served, runtime: Runtime, *, is_fault: bool, is_named: bool
) -> Finding:
    """A file from elsewhere that comes before the one of NVIDIA's wheel.

    Args:
        name: The library.
        served: That file.
        meant: The one of the wheel.
        runtime: What is known of the library.
        is_fault: True if it is the older one.
        is_named: True if LD_LIBRARY_PATH names its folder.
    """
    folder = os.path.dirname(served.path)
    return Finding(
        LIBRARIES,
        f"{_some(served)} would load {name} ({runtime.title}) from {folder} instead of "
        f"{meant.dist}.",
        severity="warning" if is_fault else "info",
        evidence=(_told(served), _told(meant)),
        consequence=f"{runtime.danger}." if is_fault else "",
        remedy=f"remove {folder} from LD_LIBRARY_PATH"
        if is_named
        else f"update or remove the {runtime.title} in {folder}, or install a {_some(served)} that "
        f"uses {meant.dist}",
        command=f'echo "$LD_LIBRARY_PATH"; ls -l {shlex.quote(folder)}/{name}*',
    )


def rivals(rival: str, one: Served, other: Served) -> Finding:
    """Two libraries that end the process beside one another."""
    return Finding(
        LIBRARIES,
        f"{_some(one)} and {_some(other)} would use two copies of {rival}.",
        evidence=(_told(one), _told(other)),
        consequence="in one process, the second one to initialize ends it: 'OMP: Error #15'.",
        remedy="install both from one source, so that they use one copy",
        command=f"cudaguard doctor --orders {_module(next(iter(one.askers)))},"
        f"{_module(next(iter(other.askers)))}",
        links=("https://github.com/joblib/threadpoolctl/blob/master/multiple_openmp.md",),
    )


def _some(served: Served) -> str:
    names = list(served.askers)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")


def _told(served: Served) -> str:
    version = ".".join(map(str, served.version)) or "of unknown version"
    asked = next(iter(served.askers.values()), "")
    users = _some(served)
    whose = f" of conda's {served.conda}" if served.conda else ""
    return f"{served.path}: {version}{whose}" + (f", for {users} ({asked})" if asked else "")


def _module(dist: str) -> str:
    return dist.replace("-", "_").lower()
