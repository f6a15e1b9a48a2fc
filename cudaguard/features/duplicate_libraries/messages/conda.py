"""The wording of what conda's packages and those of pip do to one another."""

from __future__ import annotations

import os
import shlex
import sys

from cudaguard.core.messages import and_more
from cudaguard.features.duplicate_libraries.messages.installed import INSTALLED
from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudaguard.system.conda import CondaPackage, Pair

_SHOWN = 3


def installed_twice(pair: Pair) -> Finding:
    """One module that conda and pip have both installed."""
    package, dist = pair.package, pair.dist
    return Finding(
        INSTALLED,
        f"{dist.name} is installed twice: {dist.version} by {_by(pair)}, and {package.version} by "
        "conda in the same folder.",
        severity="info" if not pair.is_native else "error" if pair.condas else "warning",
        evidence=(
            *(f"as conda installed it: {path}" for path in pair.condas[:_SHOWN]),
            *(f"as {_by(pair)} installed it: {path}" for path in pair.pips[:_SHOWN]),
            *(f"metadata of conda's: {name}" for name in pair.others[:_SHOWN]),
        ),
        consequence="modules of two releases may be imported together, and fail or crash.",
        remedy=f"uninstall {dist.name} with pip, then reinstall conda's {package.name}",
        command=_restored(pair),
    )


def required_otherwise(by: CondaPackage, wanted: str, pair: Pair) -> Finding:
    """A package of conda's that was made for another release than pip put there."""
    name = pair.package.name
    return Finding(
        INSTALLED,
        f"conda's {by.name} {by.version} requires {name} {wanted}, but {_by(pair)} replaced it "
        f"with {pair.dist.name} {pair.dist.version}.",
        severity="warning",
        consequence="if it has compiled extensions, they may crash or fail to load.",
        remedy=f"uninstall {pair.dist.name} with pip, then reinstall conda's {name}",
        command=_restored(pair),
        links=("https://github.com/spyder-ide/spyder/issues/25516",),
    )


def replaced(pairs: Sequence[Pair]) -> Finding:
    """Packages of conda's that pip replaced, which is no fault yet."""
    first = pairs[0]
    rest = "".join(f" {one}" for one in and_more(len(pairs) - 1, "packages"))
    return Finding(
        INSTALLED,
        f"{_by(first)} replaced conda's {first.package.name} {first.package.version}{rest}.",
        severity="info",
        evidence=(
            *(
                f"{pair.package.name} {pair.package.version}: now {pair.dist.name} "
                f"{pair.dist.version}"
                for pair in pairs[: 2 * _SHOWN]
            ),
            *and_more(len(pairs) - 2 * _SHOWN, "packages"),
        ),
        consequence="conda-meta still lists the release of conda. Its next update may write those "
        "files over the new ones.",
        remedy="install each package with one of the two",
        command=f"{_tool()} list",
    )


def library_missing(package: CondaPackage, lost: Sequence[str]) -> Finding:
    """A library that conda installed and that is gone."""
    rest = "".join(f" {one}" for one in and_more(len(lost) - 1, "files"))
    return Finding(
        INSTALLED,
        f"conda's {package.name} {package.version} lacks {lost[0]}{rest} that it installed.",
        severity="error",
        evidence=(*lost[:_SHOWN], *and_more(len(lost) - _SHOWN, "files")),
        consequence="programs that load what is missing fail, unless another copy is found.",
        remedy="reinstall the same version",
        command=_reinstalled(package),
    )


def package_missing(package: CondaPackage, lost: Sequence[str]) -> Finding:
    """A package that conda lists and of which nothing is there."""
    return Finding(
        INSTALLED,
        f"conda-meta lists {package.name} {package.version}, but its modules are gone.",
        severity="info",
        evidence=(*lost[:_SHOWN], *and_more(len(lost) - _SHOWN, "files")),
        consequence="imports of it fail, unless another copy is found.",
        remedy="reinstall it, or remove it with conda if you do not use it",
        command=_reinstalled(package),
    )


def _by(pair: Pair) -> str:
    return pair.installer or "another installer"


def _restored(pair: Pair) -> str:
    return f"pip uninstall -y {shlex.quote(pair.dist.name)} && {_reinstalled(pair.package)}"


def _reinstalled(package: CondaPackage) -> str:
    tool = _tool()
    if tool == "pixi":
        return f"pixi reinstall {shlex.quote(package.name)}"
    return f"{tool} install --force-reinstall {shlex.quote(f'{package.name}={package.version}')}"


def _tool() -> str:
    """Return the command that manages this environment, as far as files and variables tell."""
    if os.path.exists(os.path.join(sys.prefix, "conda-meta", "pixi")):
        return "pixi"
    for name in ("CONDA_EXE", "MAMBA_EXE"):
        if os.environ.get(name):
            return os.path.basename(os.environ[name])
    return "conda"
