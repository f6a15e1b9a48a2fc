"""The wording of what the metadata of installed distributions tells."""

from __future__ import annotations

import os
import shlex
import site

from cudaguard.core.messages import and_more
from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cudaguard.features.duplicate_libraries.policy.installed import Overlap, Unmet
    from cudaguard.model import Severity
    from cudaguard.system.distributions import Distribution


INSTALLED, PINS = "CG905", "CG906"
_SHOWN = 3


def overwritten(
    overlap: Overlap, *, gone: str, restored: Sequence[str], severity: Severity
) -> Finding:
    """Two distributions that were installed over one another.

    Args:
        overlap: Which, and their files.
        gone: The one to uninstall.
        restored: What loses files by that, as ``NAME==VERSION``.
        severity: Of the finding.
    """
    count, pair = len(overlap.files), (overlap.first, overlap.second)
    return Finding(
        INSTALLED,
        f"{pair[0]} and {pair[1]} both contain {overlap.files[0]}"
        f"{_more(count - 1)}, with different contents.",
        severity=severity,
        evidence=(*overlap.files[:_SHOWN], *and_more(count - _SHOWN, "files")),
        consequence="the one installed last overwrote files of the other. Uninstalling either "
        "deletes files of both.",
        remedy=f"uninstall {gone}, then reinstall the packages that lose files"
        if restored
        else f"uninstall {gone}",
        command=_uninstall((gone,), restored),
    )


def files_missing(pinned: str, files: Sequence[str]) -> Finding:
    """A distribution of which files are gone.

    Args:
        pinned: The distribution, as ``NAME==VERSION``.
        files: What is gone, libraries first.
    """
    has_libraries = ".so" in files[0]
    return Finding(
        INSTALLED,
        f"{pinned.replace('==', ' ')} lacks {files[0]}"
        f"{_more(len(files) - 1)} that it installed.",
        severity="error" if has_libraries else "warning",
        evidence=(*files[:_SHOWN], *and_more(len(files) - _SHOWN, "files")),
        consequence="programs that load what is missing fail, unless another copy is found."
        if has_libraries
        else "builds that need what is missing fail.",
        remedy="reinstall the same version",
        command=f"pip install {_restoring((pinned,))}",
    )  # fmt: skip


def _more(count: int) -> str:
    return "".join(f" {one}" for one in and_more(count, "files"))


def _uninstall(gone: Iterable[str], restored: Sequence[str]) -> str:
    command = f"pip uninstall -y {' '.join(gone)}"
    return f"{command} && pip install {_restoring(restored)}" if restored else command


def _restoring(pinned: Iterable[str]) -> str:
    return f"--force-reinstall --no-deps {' '.join(map(shlex.quote, pinned))}"


def not_met(unmet: Unmet) -> Finding:
    """A distribution that was made for another torch, by its own word."""
    there = f"{unmet.name} {unmet.found}" if unmet.found else "none"
    return Finding(
        INSTALLED,
        f"{unmet.by} requires {unmet.name}{unmet.wanted}, but {there} is installed.",
        severity="error" if unmet.wanted.startswith("==") else "warning",
        consequence="if it has compiled extensions, they may crash or fail to load.",
        remedy=f"install the release of {unmet.by.partition(' ')[0]} for this {unmet.name}, or "
        f"install {unmet.name}{unmet.wanted}",
        command=f"pip install --upgrade {unmet.by.partition(' ')[0]} "
        + shlex.quote(f"{unmet.name}=={unmet.found.partition('+')[0]}" if unmet.found
                      else f"{unmet.name}{unmet.wanted}"),
    )  # fmt: skip


def metadata_unreadable(path: str, why: str) -> Finding:
    """Metadata that cannot be used."""
    return Finding(
        INSTALLED,
        f"The metadata in {path} cannot be used: {why.rstrip('.')}.",
        evidence=(path,),
        consequence="pip may be unable to update or remove the package. doctor cannot check it.",
        remedy="reinstall the distribution, or remove the folder if the package is gone",
        command=f"ls -la {shlex.quote(path)}",
    )


def left_over(
    major: str, wheels: Sequence[str], others: Sequence[str], restored: Sequence[str]
) -> Finding:
    """Wheels of a CUDA that nothing here asks for.

    Args:
        major: That CUDA.
        wheels: They.
        others: The other CUDAs of which wheels are installed.
        restored: What loses files when they are uninstalled, as ``NAME==VERSION``.
    """
    return Finding(
        INSTALLED,
        f"Wheels for CUDA {major} are installed beside those for CUDA {' and '.join(others)}, but "
        "no installed package requires them.",
        severity="info",
        evidence=tuple(wheels),
        consequence="they take up disk space, and a package that searches folders for a CUDA "
        "library may load one.",
        remedy="uninstall them if you do not use them"
        + (", then reinstall the wheels that share files with them" if restored else ""),
        command=_uninstall(wheels, restored),
    )


def other_release(torch: str, unmet: Unmet) -> Finding:
    """A wheel of another release than torch pins, or none."""
    wanted = shlex.quote(f"{unmet.name}{unmet.wanted}")
    if unmet.found is None:
        what = f"torch {torch} requires {unmet.name}{unmet.wanted}, but it is not installed."
        consequence = "what needs it in torch fails, unless it is elsewhere on this machine."
    else:
        what = f"torch {torch} requires {unmet.name}{unmet.wanted}, but {unmet.found} is installed."
        consequence = "torch runs with a release that it was not built and tested with."
    return Finding(
        PINS,
        what,
        severity="warning",
        consequence=consequence,
        remedy="install the release that torch requires",
        command=f"pip install {wanted}",
    )


def not_the_release(
    by: str, unmet: Unmet, *, is_older: bool, is_of_other_major: bool = False
) -> Finding:
    """A wheel of another release than a package wants.

    Args:
        by: The package, with its version.
        unmet: What it wants, and what is installed.
        is_older: True if that is earlier than all it wants.
        is_of_other_major: True if it is of a later major version than all it wants.
    """
    wanted = f"{unmet.name}{unmet.wanted}"
    return Finding(
        PINS,
        f"{by} requires {wanted}, but {unmet.found} is installed.",
        severity="warning" if is_older or is_of_other_major else "info",
        consequence="it was probably built for a later release, and may fail on the GPU or run on "
        "the CPU."
        if is_older
        else "libraries of another major version have other names. It may fail on the GPU, or run "
        "on the CPU."
        if is_of_other_major
        else "a later release of the same major version usually works.",
        remedy="install the required release; packages that pin an earlier one of the same major "
        "version usually work with it"
        if is_older
        else "install the required release"
        if is_of_other_major
        else "do nothing while it works",
        command=f"pip install {shlex.quote(wanted)}",
    )


def hidden(torch: Distribution, other: Distribution, users: Sequence[str]) -> Finding:
    """A torch is imported that comes before the one for which extensions were built.

    Args:
        torch: The one that is imported.
        other: The one that is not, in a later folder of the path.
        users: Distributions beside that other one, with extensions that link torch.
    """
    is_users = os.path.realpath(torch.folder).startswith(os.path.realpath(site.USER_BASE or "/-"))
    remedy = (
        f"uninstall the torch in {torch.folder}"
        + (", or start Python with PYTHONNOUSERSITE=1" if is_users else "")
        + f"; or install {users[0]} in the same folder"
    )
    return Finding(
        INSTALLED,
        f"torch {torch.version} in {torch.folder} hides torch {other.version}, beside which "
        f"{users[0]} is installed.",
        severity="warning",
        evidence=(
            f"hidden: {other.folder}",
            *(f"{user} links torch" for user in users[:_SHOWN]),
        ),
        consequence="extensions built for the hidden torch may crash, or fail with 'undefined "
        "symbol'.",
        remedy=remedy,
        command="PYTHONNOUSERSITE=1 python -c 'import torch; print(torch.__file__)'"
        if is_users
        else "pip uninstall torch",
        links=("https://github.com/NVIDIA/TransformerEngine/issues/1192",),
    )
