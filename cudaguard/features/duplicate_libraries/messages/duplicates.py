"""The wording of two files of one library, and of a library that gets another than was meant."""

from __future__ import annotations

from typing import NamedTuple

from cudaguard.core.verbs import toml_text
from cudaguard.files import os
from cudaguard.files.text import RULE_LINE
from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.features.duplicate_libraries.policy.duplicates import Copy
    from cudaguard.model import Severity


TWO_FILES, ANOTHER_FILE = "CG842", "CG843"
_OPENMP_ERROR = "https://github.com/joblib/threadpoolctl/blob/master/multiple_openmp.md"
_LINKS = {
    "cuDNN": (
        "https://github.com/pytorch/pytorch/issues/119989",
        "https://github.com/pytorch/pytorch/issues/188892",
    ),
}
_MORE = "cudaguard.status() lists all libraries that come from {}"


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
        f"actions = [{toml_text({'preload_library': cure.pattern})}]",
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
