"""Findings about libraries that are there twice: in the process, or in what is installed."""

from __future__ import annotations

import shlex
import site

from cudaguard.core.findings import SHOWN, Finding, Kind, first_few, listed, sentence
from cudaguard.core.rule_check import rule_to_save
from cudaguard.core.table import github
from cudaguard.files import os
from cudaguard.model import TYPE_CHECKING, NamedTuple
from cudaguard.system.facts import Packages

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cudaguard.model import Severity
    from cudaguard.system.packages import Distribution
    from cudaguard.system.runtimes import Copy, CudnnRequirement, Stray

_LINKS = {
    "cuDNN": github("pytorch/pytorch/issues/119989 pytorch/pytorch/issues/188892"),
    "OpenMP": github("joblib/threadpoolctl/blob/master/multiple_openmp.md"),
}

# --- in the process -------------------------------------------------------------------------------

TWO_FILES = Kind("CG842", "two files of one library are loaded", "ImportOrderWarning")
ANOTHER_FILE = Kind(
    "CG843", "a library uses another file than its run path names", "ImportOrderWarning"
)
INSTALLATION = Kind("CG905", "installed distributions")
SHARED_NAME = Kind("CG903", "libraries that packages share")
OLDER = Kind(
    "CG823",
    "a library is older than a package was built for",
    "ImportOrderWarning",
    consequence="Packages that need the library may fail on the GPU, or run on the CPU.",
    remedy="install the version that the package requires; others usually work with it too",
    page="howto/extensions.md",
    links=github(
        "jax-ml/jax/issues/15268 jax-ml/jax/issues/19004 conda-forge/jaxlib-feedstock/issues/329"
    ),
)


def older_first(first: Copy, second: Copy, remedy: str) -> Finding:
    """Two files of one name are loaded, and the older one was loaded first."""
    return TWO_FILES.found(
        f"Two files of {first.runtime.title} are loaded; the older, {first.release_text}, is used "
        f"as {first.soname}.",
        _loaded(first),
        _loaded(second),
        consequence=f"Every library that loads {first.soname} by name gets {first.release_text}: "
        f"{first.runtime.danger}.",
        remedy=remedy,
    )


def rivals(first: Copy, second: Copy) -> Finding:
    """Two runtimes cannot be used in one process."""
    what = "Two files" if first.stem == second.stem else "Two kinds"
    names = f"{os.path.basename(first.path)} and {os.path.basename(second.path)}"
    return TWO_FILES.found(
        f"{what} of {first.runtime.rival} are loaded: {names}.",
        _loaded(first),
        _loaded(second),
        consequence=f"{first.runtime.danger}.",
        remedy="install both packages from one source (all by conda, or all by pip), or make one "
        "file a symbolic link to the other",
        links=_LINKS.get(first.runtime.title, ()),
    )


def mixed(first: Copy, other: Copy, remedy: str) -> Finding:
    """Parts of one library come from different folders; the other one has to fit the first."""
    title, danger = first.runtime.title, first.runtime.danger
    is_known = first.release and other.release
    unknown = "" if is_known else "Their versions are not known. "
    return TWO_FILES.found(
        f"Parts of {title} come from different folders.",
        _loaded(first),
        _loaded(other),
        consequence=f"{unknown}Parts of different versions do not work together: {danger}.",
        remedy=remedy,
        links=_LINKS.get(title, ()),
    )


def another_file(stray: Stray, remedy: str) -> Finding:
    """A library uses an older file than the folders that it names lead to.

    Or it will open a part of itself by name, and find another file than the one beside it.
    """
    name, used, meant = os.path.basename(stray.asking), stray.used, stray.meant
    runtime, wanted = used.runtime, _with_release(meant)
    what = f"uses an older file of {runtime.title} than its run path names"
    where = f"its run path leads to {wanted}"
    danger = f"{name} was probably built for a newer version"
    if stray.is_part:
        older = "an older" if used.release and used.release < meant.release else "another"
        what = f"would open {older} file of {runtime.title} than the one beside it"
        where, danger = f"beside it is {wanted}", "Parts of different versions do not work together"
    return ANOTHER_FILE.found(
        f"{name} {what}.",
        _loaded(used),
        f"{stray.asking} {stray.how}, and {where}",
        consequence=f"{danger}: {runtime.danger}.",
        remedy=remedy,
        links=_LINKS.get(runtime.title, ()),
    )


def _with_release(copy: Copy) -> str:
    return f"{copy.path} ({copy.release_text})" if copy.release else copy.path


def _loaded(copy: Copy) -> str:
    return f"{_with_release(copy)} {copy.how}"


def load_first(wanted: str, files: str, package: str, pattern: str) -> str:
    """Return how the file `wanted` comes first, with all that match `files`.

    That is before `package`, if it is known; `pattern` is how a rule names the file, empty where it
    is in no folder of ``sys.path``.
    """
    if not (package and pattern):
        before = f"`import {package}`" if package else "the other one is loaded"
        if "*" in files:
            folder = os.path.dirname(wanted)
            return f"load all {files} of {folder} with ctypes.CDLL before {before}"
        return f"load the right file first: `ctypes.CDLL({wanted!r})` before {before}"
    why = f"{package} loads another {os.path.basename(wanted)}"
    rule = rule_to_save(package, {"preload": pattern}, why)
    return f"load the right file before {package}: {rule}"


def older_than_wanted(
    want: CudnnRequirement, release: tuple[int, ...], loaded: Copy | None, *, conda: bool
) -> Finding:
    """The cuDNN that is loaded, or installed, is older than the one a package was built for."""
    version, least = ".".join(map(str, release)), ".".join(map(str, want.least))
    remedy = "install the required version"
    if loaded is not None and want.wheel and f"{os.sep}nvidia{os.sep}" not in loaded.path:
        remedy += f", and keep {os.path.dirname(loaded.path)} out of LD_LIBRARY_PATH"
    remedy += "; packages built for an earlier one usually work with it"
    other = loaded.by.partition(".")[0] if loaded is not None else want.package
    if other not in ("", want.package, "__main__", "__mp_main__"):
        remedy += f"; or import {want.package} and use it once before `import {other}`"
    return OLDER.found(
        f"{want.package} {'requires' if want.wheel else 'was built for'} cuDNN {least} or later, "
        f"but {version} is {'installed' if loaded is None else 'loaded'}.",
        f"{loaded.path} ({version}) {loaded.how}" if loaded is not None else "",
        f"{want.by} requires {want.said}" if want.wheel else f"{want.by} reports it",
        # XLA compares the releases, and says so.
        consequence=f"{want.package} runs on the CPU, or fails with 'Loaded runtime CuDNN library: "
        f"{version} but source was compiled with'."
        if want.package in ("jax", "tensorflow")
        else f"{want.package} may fail on the GPU, or run on the CPU.",
        remedy=remedy,
        command=f"pip install {shlex.quote(want.said)}"
        if want.wheel
        else f"conda install {shlex.quote(want.said)}"
        if conda
        else "cudaguard doctor",
    )


# --- what is installed: distributions (CG905) -----------------------------------------------------


def overwritten_files(
    names: Sequence[str],
    files: Sequence[str],  # files that several list, with different contents
    asking: Sequence[str],  # who requires them, in words
    *,
    gone: Sequence[str],  # those to uninstall
    restored: Sequence[str],  # what loses files by that, as ``NAME==VERSION``
    severity: Severity,  # of the finding
) -> Finding:
    """Distributions were installed over one another."""
    remedy, command = f"uninstall {listed(gone)}", f"pip uninstall -y {shlex.join(gone)}"
    if restored:
        remedy += ", then reinstall the packages that lose files"
        command += f" && pip install --force-reinstall --no-deps {shlex.join(restored)}"
    return INSTALLATION.found(
        f"{listed(names)} overwrite files of each other.",
        *first_few((*files[:1], *asking, *files[1:]), "files and requirements"),
        severity=severity,
        consequence="The one installed last overwrote files of the others. Uninstalling any "
        "of them deletes files of the others.",
        remedy=remedy,
        command=command,
    )


def metadata_unreadable(path: str, why: str) -> Finding:
    """Metadata cannot be used."""
    return INSTALLATION.found(
        f"The metadata in {path} cannot be used: {why.rstrip('.')}.",
        path,
        consequence="pip may be unable to update or remove the package. doctor cannot check it.",
        remedy="reinstall the distribution, or remove the folder if the package is gone",
        command=f"ls -la {shlex.quote(path)}",
    )


def hidden(dist: Distribution, other: Distribution, users: Mapping[str, str]) -> Finding:
    """A distribution comes first on the path that is not the one for which others were installed.

    The `users` (name -> what each says) are beside the `other` one, in a later folder of the path.
    Source: NVIDIA/TransformerEngine#1192.
    """
    name, folder, user = dist.name, dist.folder, next(iter(users))
    remedy, command = f"uninstall the {name} in {folder}", f"pip uninstall {name}"
    show = f"python -m pip show {name}"
    if os.path.realpath(folder).startswith(os.path.realpath(site.USER_BASE or "/-")):
        remedy += ", or start Python with PYTHONNOUSERSITE=1"
        command = f"PYTHONNOUSERSITE=1 {show}"
    elif folder in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        remedy, command = f"take {folder} out of PYTHONPATH", f"env -u PYTHONPATH {show}"
    return INSTALLATION.found(
        f"{name} {dist.version} hides {name} {other.version}, for which {user} was installed.",
        f"hidden: {other.folder}",
        *(f"{one} {said}" for one, said in list(users.items())[:SHOWN]),
        consequence=f"{user} may crash, fail to import ('undefined symbol'), or misbehave.",
        remedy=f"{remedy}; or install {user} in the same folder",
        command=command,
    )


# --- what is installed: libraries (CG903) ---------------------------------------------------------


class Served(NamedTuple):
    """A file that packages would get for a library."""

    path: str  # the file, links resolved
    askers: dict[str, list[str]]  # distributions that would get it -> their files that ask
    version: tuple[int, ...]  # its version, empty if names do not tell
    dist: str  # the distribution that contains it, empty if none does


def undefined(dist: str, symbols: Sequence[str]) -> str:
    """Return what becomes of a distribution with a library that lacks what it needs."""
    more = f" and {len(symbols) - 1} more" if symbols[1:] else ""
    return f"loading {dist} probably fails with 'undefined symbol: {symbols[0]}'{more}"


def two_files(name: str, older: Served, newer: Served, title: str, danger: str) -> Finding:
    """One name leads to different files, depending on who asks first."""
    first, then = next(iter(older.askers)), next(iter(newer.askers))
    files = older.askers[first][0], newer.askers[then][0]
    modules = ",".join(map(Packages().of, map(os.path.realpath, files)))
    return SHARED_NAME.found(
        f"{first} and {then} would load different files of {name} ({title}).",
        *(_served(older), _served(newer)),
        consequence=f"The first import decides for both. With {first} imported first, {then} gets "
        f"the older one: {danger}.",
        remedy=f"import {then} before {first}, or install versions that use the same wheel",
        command=f"cudaguard bisect --imports {shlex.quote(modules)}",
    )


def astray(
    name: str, served: Served, meant: Served, title: str, danger: str, *, is_named: bool
) -> Finding:
    """An older file from elsewhere comes before NVIDIA's wheel; is_named by LD_LIBRARY_PATH."""
    folder, askers = os.path.dirname(served.path), _askers(served)
    return SHARED_NAME.found(
        f"{askers} would load {name} ({title}) from {folder} instead of {meant.dist}.",
        *(_served(served), _served(meant)),
        consequence=f"{sentence(danger)}.",
        remedy=f"remove {folder} from LD_LIBRARY_PATH"
        if is_named
        else f"update or remove the {title} in {folder}, or install a {askers} that uses "
        f"{meant.dist}",
        command=f'echo "$LD_LIBRARY_PATH"; ls -l {shlex.quote(f"{folder}/{name}")}*',
    )


def _askers(served: Served) -> str:
    names = list(served.askers)
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if names[3:] else "")


def _served(served: Served) -> str:
    version = ".".join(map(str, served.version)) or "of unknown version"
    asked = next(iter(served.askers.values()), [""])[0]
    return f"{served.path}: {version}" + (f", for {_askers(served)} ({asked})" if asked else "")
