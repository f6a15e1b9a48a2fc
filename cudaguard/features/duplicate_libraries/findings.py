"""What is said of libraries that are there twice: in the process, and in what is installed."""

from __future__ import annotations

import shlex
import site
from typing import NamedTuple

from cudaguard.core.findings import and_more
from cudaguard.core.rule_check import toml_text
from cudaguard.files import os
from cudaguard.files.text import RULE_LINE
from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cudaguard.features.duplicate_libraries.policy import Copy, Want
    from cudaguard.model import Severity
    from cudaguard.system.packages import Distribution, ReplacedPackage
    from cudaguard.system.runtimes import Runtime

TWO_FILES, ANOTHER_FILE, OLDER = "CG842", "CG843", "CG823"
LIBRARIES, INSTALLED, PINS = "CG903", "CG905", "CG906"
_OPENMP_ERROR = "https://github.com/joblib/threadpoolctl/blob/master/multiple_openmp.md"
_LINKS = {
    "cuDNN": (
        "https://github.com/pytorch/pytorch/issues/119989",
        "https://github.com/pytorch/pytorch/issues/188892",
    ),
}
_LINKS_OF_JAX = (
    "https://github.com/jax-ml/jax/issues/15268",
    "https://github.com/jax-ml/jax/issues/19004",
    "https://github.com/conda-forge/jaxlib-feedstock/issues/329",
)
_OF_XLA = ("jax", "tensorflow")  # which compares the releases, and says so
_MORE = "cudaguard.status() lists all libraries that come from {}"
_SHOWN = 3


class Precedence(NamedTuple):
    """How the right file comes first.

    Args:
        wanted: That file.
        files: Its name, or a pattern of all that have to come from its folder.
        variable: The variable that led to the wrong one, if one did.
        folder: The folder of the wrong one.
        package: The package before which it is to be loaded, empty if that is not known.
        pattern: How a rule names it, empty where it is in no folder of ``sys.path``.
    """

    wanted: str
    files: str
    variable: str
    folder: str
    package: str
    pattern: str


def older_first(
    first: Copy,
    second: Copy,
    versions: tuple[str, str],
    subject: tuple[str, str],
    cure: Precedence,
    severity: Severity,
) -> Finding:
    """Two files of one name, and the older one was mapped first.

    Args:
        first: It.
        second: The other.
        versions: Of both.
        subject: What the library is called, and what is in danger.
        cure: How it is done right.
        severity: ``warning`` or ``info``.
    """
    title, danger = subject
    return Finding(
        TWO_FILES,
        f"Two files of {title} are loaded, and the older one, {versions[0]}, is used as "
        f"{first.soname}.",
        severity=severity,
        evidence=(
            _line(first, versions[0]),
            _line(second, versions[1]),
            _MORE.format(os.path.dirname(first.path)),
        ),
        consequence=(
            f"every library that loads {first.soname} by name gets {versions[0]}: {danger}."
        ),
        remedy=_remedy(cure),
    )


def rivals(first: Copy, second: Copy, title: str, *, is_allowed: bool) -> Finding:
    """Two runtimes that cannot be used in one process.

    Args:
        first: The one that was mapped first.
        second: The other.
        title: What they are called.
        is_allowed: True if the user set KMP_DUPLICATE_LIB_OK.
    """
    what = "Two files" if first.stem == second.stem else "Two kinds"
    consequence = (
        "KMP_DUPLICATE_LIB_OK is set: the program goes on, and may hang, crash or compute wrong "
        "numbers."
        if is_allowed
        else "the second one to initialize ends the process: 'OMP: Error #15'. With "
        "KMP_DUPLICATE_LIB_OK set it may hang, crash or compute wrong numbers instead."
    )
    return Finding(
        TWO_FILES,
        f"{what} of {title} are loaded: {os.path.basename(first.path)} and "
        f"{os.path.basename(second.path)}.",
        severity="info" if is_allowed else "warning",
        evidence=(_line(first), _line(second)),
        consequence=consequence,
        remedy="install both packages from one source (all by conda, or all by pip), or make one "
        "file a symbolic link to the other",
        links=(_OPENMP_ERROR,),
    )


def harmless(
    first: Copy, second: Copy, title: str, versions: tuple[str, str], kind: str
) -> Finding:
    """Two files of one library of which no harm is known.

    Args:
        first: The one that was mapped first.
        second: The other.
        title: What the library is called.
        versions: Of both, empty where they are not known.
        kind: See `cudaguard.features.duplicate_libraries.policy.duplicates`.
    """
    by_name = f"every library that loads {first.soname} by name gets the first one"
    consequence = {
        "apart": "they have different names, so each package uses its own.",
        "same": f"they are of the same release. {_capital(by_name)}.",
        "newer": f"{by_name}, which is newer.",
        "older": f"{by_name}, which is older but has all symbols needed so far.",
        "unknown": f"{by_name}. Their versions are unknown.",
    }[kind]
    return Finding(
        TWO_FILES,
        f"Two files of {title} are loaded: {first.path} and {second.path}.",
        severity="info",
        evidence=(_line(first, versions[0]), _line(second, versions[1])),
        consequence=consequence,
    )


def mixed(
    one: Copy,
    other: Copy,
    versions: tuple[str, str],
    subject: tuple[str, str],
    cure: Precedence,
) -> Finding:
    """Two parts of one library come from different folders, and may be of different releases.

    Args:
        one: The part that the other has to fit.
        other: The part that does not fit.
        versions: Of both, empty where they are not known.
        subject: What the library is called, and what is in danger.
        cure: How it is done right.
    """
    title, danger = subject
    consequence = f"parts of different releases do not work together: {danger}."
    if not all(versions):
        consequence = f"their releases are not known. {_capital(consequence)}"
    return Finding(
        TWO_FILES,
        f"Parts of {title} come from different folders: {os.path.dirname(one.path)} and "
        f"{os.path.dirname(other.path)}.",
        evidence=(_line(one, versions[0]), _line(other, versions[1])),
        consequence=consequence,
        remedy=_remedy(cure),
        links=_LINKS.get(title, ()),
    )


def another_file(
    asking: tuple[str, str],
    serving: Copy,
    versions: tuple[str, str],
    subject: tuple[str, str],
    cure: Precedence,
    severity: Severity,
    *,
    is_older: bool,
    is_part: bool,
) -> Finding:
    """A library gets another file than the folders that it names lead to.

    Args:
        asking: The library, and who loaded it in words that follow its path.
        serving: What it gets.
        versions: Of what it gets and of what it was meant to get, empty where they are not known.
        subject: What the library in question is called, and what is in danger.
        cure: How it is done right.
        severity: ``warning`` or ``info``.
        is_older: True if what it gets is the older one.
        is_part: True if it will open a part of itself by name, and that is found elsewhere.
    """
    title, danger = subject
    path, how = asking
    consequence = f"every library that loads {serving.soname} by name gets this one"
    if is_part:
        consequence = f"parts of different releases do not work together: {danger}"
    elif severity != "info":
        made_for = "a newer release" if is_older else "its own release"
        consequence = f"{os.path.basename(path)} was probably built for {made_for}: {danger}"
    other = "an older" if is_older else "another"
    does, than, leads = "uses", "its run path names", "its run path leads to"
    if is_part:
        does, than, leads = "would open", "the one beside it", "beside it is"
    return Finding(
        ANOTHER_FILE,
        f"{os.path.basename(path)} {does} {other} file of {title} than {than}: {serving.path}.",
        severity=severity,
        evidence=(
            _line(serving, versions[0]),
            f"{path} {how}, and {leads} {cure.wanted}{_version(versions[1])}",
            _MORE.format(os.path.dirname(serving.path)),
        ),
        consequence=f"{consequence}.",
        remedy=_remedy(cure) if severity != "info" else "",
        links=_LINKS.get(title, ()),
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _line(copy: Copy, version: str = "") -> str:
    return f"{copy.path}{_version(version)} {copy.how}"


def _version(version: str) -> str:
    return f" ({version})" if version else ""


def _remedy(cure: Precedence) -> str:
    first = _first(cure)
    if not cure.variable:
        return first
    return f"start the program without {cure.folder} in {cure.variable}; or {first}"


def _first(cure: Precedence) -> str:
    if not (cure.package and cure.pattern):
        before = f"`import {cure.package}`" if cure.package else "the other one is loaded"
        if "*" in cure.files:
            folder = os.path.dirname(cure.wanted)
            return f"load all {cure.files} of {folder} with ctypes.CDLL before {before}"
        return f"load the right file first: `ctypes.CDLL({cure.wanted!r})` before {before}"
    advice = (
        f"load the right file before {cure.package}: save this rule as cudaguard.toml and set "
        "CUDAGUARD_CONFIG=cudaguard.toml:"
    )
    lines = (
        advice,
        "[[rules]]",
        'id = "LOCAL001"',
        f'watch = ["{cure.package}"]',
        f"actions = [{toml_text({'preload': cure.pattern})}]",
        f'why = "{cure.package} loads another {os.path.basename(cure.wanted)}"',
    )
    return RULE_LINE.join(lines)


def past_environment(copy: Copy, later: str, title: str) -> Finding:
    """A search for libraries has taken one of the machine's, and not that of the environment.

    Args:
        copy: What it has loaded.
        later: The file of the environment.
        title: What the library is called.
    """
    search = ".".join(copy.by.split(".")[:2])
    dist = search.replace(".", "-")
    return Finding(
        "CG826",
        f"{search} loaded {copy.path}, although this environment has {os.path.basename(later)}.",
        evidence=(f"{copy.path} {copy.how}", later),
        consequence=f"what loads {title} by {search} gets an older release than the environment "
        "has.",
        remedy=f"upgrade {dist} by pip or conda, whichever installed it: later releases search the "
        "environment first",
        command=f"python -m pip show {dist}; conda list {dist}",
        links=("https://github.com/NVIDIA/cuda-python/issues/839",),
    )


def older_than_wanted(
    want: Want, release: tuple[int, ...], serving: Copy | None, *, conda: bool = False
) -> Finding:
    """The cuDNN of this process is older than the one that a package was built for.

    Args:
        want: What it was built for.
        release: What there is.
        serving: The file that is in the process, None if none is yet.
        conda: True in an environment of conda's.
    """
    version, least = ".".join(map(str, release)), ".".join(map(str, want.least))
    how = "is installed" if serving is None else "is loaded"
    built = "requires" if want.wheel else "was built for"
    evidence = [f"{want.by} requires {want.said}" if want.wheel else f"{want.by} reports it"]
    if serving is not None:
        evidence.insert(0, f"{serving.path} ({version}) {serving.how}")
    other = serving.by.partition(".")[0] if serving is not None else ""
    remedy = "install the required release"
    folder = os.path.dirname(serving.path) if serving is not None else ""
    if folder and want.wheel and f"{os.sep}nvidia{os.sep}" not in folder:
        remedy += f", and keep {folder} out of LD_LIBRARY_PATH"
    remedy += "; packages built for an earlier one usually work with it"
    if other and other != want.package:
        remedy += f"; or import {want.package} and use it once before `import {other}`"
    return Finding(
        OLDER,
        f"{want.package} {built} cuDNN {least} or later, but {version} {how}.",
        evidence=tuple(evidence),
        consequence=f"{want.package} runs on the CPU, or fails with 'Loaded runtime CuDNN library: "
        f"{version} but source was compiled with'."
        if want.package in _OF_XLA
        else f"{want.package} may fail on the GPU, or run on the CPU.",
        remedy=remedy,
        command=f"pip install {shlex.quote(want.said)}"
        if want.wheel
        else f"conda install {shlex.quote(f'cudnn>={least}')}"
        if conda
        else "cudaguard doctor",
        links=_LINKS_OF_JAX,
    )


# --- what is installed: distributions ------------------------------------------------------------


class Overlap(NamedTuple):
    """Two distributions that were installed over one another.

    Args:
        first: One of them.
        second: The other.
        files: Files that both list, with different contents.
    """

    first: str
    second: str
    files: tuple[str, ...]


class Unmet(NamedTuple):
    """A requirement that what is installed does not meet.

    Args:
        by: The distribution that requires it.
        name: What is required.
        wanted: In which versions, as in ``==2.6.0``; may be empty.
        found: What is installed, None if nothing is.
    """

    by: str
    name: str
    wanted: str
    found: str | None


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
        command=f"pip uninstall -y {gone}"
        + (f" && pip install {_restoring(restored)}" if restored else ""),
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


def not_the_release(by: str, unmet: Unmet, distance: str) -> Finding:
    """A wheel of another release than a package wants.

    Args:
        by: The package, with its version.
        unmet: What it wants, and what is installed.
        distance: What that is: ``older`` than all it wants, of a later ``major`` version, or
            ``newer``.
    """
    wanted = f"{unmet.name}{unmet.wanted}"
    consequence, remedy = {
        "older": (
            "it was probably built for a later release, and may fail on the GPU or run on the CPU.",
            (
                "install the required release; packages that pin an earlier one of the same major "
                "version usually work with it"
            ),
        ),
        "major": (
            (
                "libraries of another major version have other names. It may fail on the GPU, or "
                "run on the CPU."
            ),
            "install the required release",
        ),
        "newer": (
            "a later release of the same major version usually works.",
            "do nothing while it works",
        ),
    }[distance]
    return Finding(
        PINS,
        f"{by} requires {wanted}, but {unmet.found} is installed.",
        severity="info" if distance == "newer" else "warning",
        consequence=consequence,
        remedy=remedy,
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


# --- what is installed: conda and pip ------------------------------------------------------------


def mixed_releases(one: ReplacedPackage, wanted: Sequence[str]) -> Finding:
    """A package that pip installed beside conda's, or in place of one that others of conda's need.

    Args:
        one: The package.
        wanted: What of conda's requires another release, and which.
    """
    package = one.package
    return Finding(
        INSTALLED,
        f"{one.dist} is installed twice: {one.version} by pip, and {package.version} by conda."
        if one.is_mixed
        else f"pip replaced conda's {package.name} {package.version} with {one.version}, but "
        f"conda's {wanted[0]}.",
        evidence=(*wanted[1:_SHOWN], *and_more(len(wanted) - _SHOWN, "packages")),
        consequence="compiled modules of two releases meet, and may crash or fail to load.",
        remedy=f"uninstall {one.dist} with pip, then reinstall conda's {package.name}",
        command=f"pip uninstall -y {one.dist} && conda install --force-reinstall "
        + shlex.quote(f"{package.name}={package.version}"),
        links=("https://github.com/spyder-ide/spyder/issues/25516",),
    )


def replaced(found: Sequence[ReplacedPackage]) -> Finding:
    """Packages of conda's that pip replaced, which is no fault yet."""
    said = [f"{p.name} {p.version}: now {dist} {version}" for p, dist, version, _ in found]
    first, *rest = (f"{one.package.name} {one.package.version}" for one in found)
    return Finding(
        INSTALLED,
        " ".join((f"pip replaced conda's {first}", *and_more(len(rest), "packages"))) + ".",
        severity="info",
        evidence=(*said[: 2 * _SHOWN], *and_more(len(said) - 2 * _SHOWN, "packages")),
        consequence="conda-meta still lists the release of conda. Its next update may write those "
        "files over the new ones.",
        remedy="install each package with one of the two",
        command="conda list",
    )


# --- what is installed: libraries ----------------------------------------------------------------


class Served(NamedTuple):
    """A file that packages would get for a library.

    Args:
        path: The file, links resolved.
        askers: Distributions that would get it -> one of their files that asks.
        version: Its version, empty if names do not tell.
        dist: The distribution that contains it, empty if none does.
    """

    path: str
    askers: dict[str, str]
    version: tuple[int, ...]
    dist: str


def two_files(
    name: str, older: Served, newer: Served, runtime: Runtime, *, is_fault: bool
) -> Finding:
    """One name that leads to different files, depending on who asks first."""
    first, then = next(iter(older.askers)), next(iter(newer.askers))
    is_known = bool(older.version and newer.version)
    source = "install releases that use the same wheel"
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
        command=f"cudaguard bisect --imports {_module(first)},{_module(then)}",
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


def two_rivals(rival: str, one: Served, other: Served) -> Finding:
    """Two libraries that end the process beside one another."""
    return Finding(
        LIBRARIES,
        f"{_some(one)} and {_some(other)} would use two copies of {rival}.",
        evidence=(_told(one), _told(other)),
        consequence="in one process, the second one to initialize ends it: 'OMP: Error #15'.",
        remedy="install both from one source, so that they use one copy",
        command=f"cudaguard bisect --imports {_module(next(iter(one.askers)))},"
        f"{_module(next(iter(other.askers)))}",
        links=(_OPENMP_ERROR,),
    )


def _some(served: Served) -> str:
    names = list(served.askers)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")


def _told(served: Served) -> str:
    version = ".".join(map(str, served.version)) or "of unknown version"
    asked = next(iter(served.askers.values()), "")
    users = _some(served)
    return f"{served.path}: {version}" + (f", for {users} ({asked})" if asked else "")


def _module(dist: str) -> str:
    return dist.replace("-", "_").lower()
