"""Tells what is wrong where two files of one library are here, or another than was meant."""

from __future__ import annotations

import re
import sys

from cudaguard.core.caller import caller_frame, frame_outside, is_importing
from cudaguard.core.reports import LATER
from cudaguard.elf.library_facts import is_same_build, version_of
from cudaguard.elf.process import at_start
from cudaguard.errors import ImportOrderError
from cudaguard.features.duplicate_libraries import findings, policy
from cudaguard.features.duplicate_libraries.policy import Want, folder_of
from cudaguard.files import os, ours
from cudaguard.system.facts import Facts, requires_of
from cudaguard.system.modules import peek
from cudaguard.system.preload import has_driver
from cudaguard.system.runtimes import runtime_of, stem_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cudaguard.core.dispatch import Dispatch
    from cudaguard.features.duplicate_libraries.policy import Copy, Stray
    from cudaguard.model import Finding, Severity

    Release = tuple[int, ...]

_PROGRAM = ("", "__main__", "__mp_main__")
_YES = ("1", "true", "t", "yes", "y", "on")
# NVIDIA's searches for libraries: older ones do not look into the environment first.
SEARCHES = ("cuda.pathfinder", "cuda.bindings.path_finder")


def judge(
    core: Dispatch,
    copies: list[Copy],
    new: list[Copy],
    strays: list[Stray],
    told: set[tuple[str, ...]],
    *,
    is_load: bool,
) -> None:
    """Tell of what the newcomers are beside those that were there before.

    Args:
        core: Is told.
        copies: All that are in the process, in the order in which they were mapped.
        new: Those of them that have just come.
        strays: Libraries that get another file than they were meant to.
        told: Folders and pairs of them that were told of: once is enough. They are added to.
        is_load: True if it was a load that was seen.

    Raises:
        ImportOrderError: in `strict`, from an import.
    """
    frame = caller_frame()
    can_raise = is_load and is_importing()
    refused: ImportOrderError | None = None
    found = (*_pairs(copies, new), *_mixtures(copies, new), *_astray(strays))
    for finding, one, other in found:
        title, folder = runtime_of(one.stem).title, folder_of(one)
        pair, is_fault = (title, *sorted((folder, folder_of(other)))), finding.severity == "warning"
        if not is_fault and pair in told:
            continue
        is_known = is_fault and not told.isdisjoint((("fault", *pair), ("fault", folder)))
        told |= {pair, ("fault", *pair), ("fault", folder)} if is_fault else {pair}
        later = LATER if is_fault and not can_raise and refused is None else None
        is_news = core.reporter.found(finding, frame, stop=later, carried_by_error=is_known)
        if is_news and is_fault and refused is None:
            refused = ImportOrderError(finding.as_error(), path=one.path)
    if refused is not None and can_raise:
        core.reporter.stop(refused)


def _pairs(copies: list[Copy], new: list[Copy]) -> Iterator[tuple[Finding, Copy, Copy]]:
    for at, second in enumerate(copies):
        if second not in new:
            continue
        others = [
            (_kind(first, second), first)
            for first in copies[:at]
            if policy.are_alike(first.stem, second.stem) and first.identity != second.identity
        ]
        if not others:
            continue
        # The one that matters: a fault, one of the same name, the first of all.
        kind, first = min(
            others,
            key=lambda other: (
                not policy.is_fault(other[0], second.stem),
                other[1].soname != second.soname,
            ),
        )
        yield _pair(first, second, kind), first, second


def _pair(first: Copy, second: Copy, kind: str) -> Finding:
    runtime, versions = runtime_of(first.stem), (_text(first), _text(second))
    if kind == policy.RIVALS:
        is_allowed = os.environ.get("KMP_DUPLICATE_LIB_OK", "").lower() in _YES
        return findings.rivals(first, second, runtime.rival, is_allowed=is_allowed)
    if not policy.is_fault(kind, first.stem):
        return findings.harmless(first, second, runtime.title, versions, kind)
    subject, cure = (runtime.title, runtime.danger), _cure(second, first, first.by)
    return findings.older_first(first, second, versions, subject, cure, _severity(first))


def _mixtures(copies: list[Copy], new: list[Copy]) -> Iterator[tuple[Finding, Copy, Copy]]:
    serving = policy.winners(copies)
    told = set()
    for copy in new:
        if serving.get(copy.soname) is not copy:
            continue
        for other in policy.parts_beside(copy, serving.values()):
            runtime = runtime_of(copy.stem)
            versions = _version(other), _version(copy)
            if runtime.part_of in told or folder_of(copy) == folder_of(other):
                continue
            if all(versions) and policy.compared(versions) == policy.SAME:
                continue
            told.add(runtime.part_of)
            one, stranger = (copy, other) if _variable(other) else (other, copy)
            by = min(copy, other, key=copies.index).by
            finding = findings.mixed(
                one,
                stranger,
                (_text(one), _text(stranger)),
                (runtime.title, runtime.danger),
                _cure(one, stranger, by),
            )
            yield finding, stranger, one


def _astray(strays: list[Stray]) -> Iterator[tuple[Finding, Copy, Copy]]:
    told = set()
    for stray in strays:
        serving, meant = stray.serving, stray.meant
        if (serving.path, meant.path) in told or is_same_build(serving.path, meant.path):
            continue
        told.add((serving.path, meant.path))
        kind = policy.compared((_version(serving), _version(meant)))
        if kind == policy.SAME:
            continue
        runtime = runtime_of(serving.stem)
        is_wrong = stray.is_part or policy.is_fault(kind, serving.stem)
        finding = findings.another_file(
            (stray.asking, stray.how),
            serving,
            (_text(serving), _text(meant)),
            (runtime.title, runtime.danger),
            _cure(meant, serving, serving.by),
            _severity(serving) if is_wrong else "info",
            is_older=kind == policy.OLDER,
            is_part=stray.is_part,
        )
        yield finding, serving, meant


def _kind(first: Copy, second: Copy) -> str:
    versions = _version(first), _version(second)
    return policy.kind_of(first, second, versions, is_same_build(first.path, second.path))


def _version(copy: Copy) -> tuple[int, ...]:
    return version_of(copy.path, copy.soname, runtime_of(copy.stem).wheel)


def _text(copy: Copy) -> str:
    return ".".join(map(str, _version(copy)))


def _severity(first: Copy) -> Severity:
    """Return how loud a fault is: what somebody has preloaded is there because he wants it so."""
    preloaded = at_start("LD_PRELOAD").replace(":", " ").split()
    names = (os.path.realpath(first.path), os.path.basename(first.path))
    is_wanted = any(name in names or os.path.realpath(name) in names for name in preloaded)
    return "info" if is_wanted else "warning"


def _cure(wanted: Copy, other: Copy, by: str) -> findings.Precedence:
    """Return how a file comes before another one.

    Args:
        wanted: That file.
        other: The one that has served instead.
        by: The module that was the first to load one of them.
    """
    package = by.partition(".")[0]
    folder, name = os.path.split(os.path.abspath(wanted.path))
    part_of = runtime_of(wanted.stem).part_of
    if part_of:  # all parts, or they come from somewhere else again
        name = f"lib{part_of}*.so{wanted.soname.partition('.so')[2]}"
    return findings.Precedence(
        wanted.path,
        name,
        _variable(other),
        os.path.dirname(other.path),
        "" if package in _PROGRAM else package,
        _below(folder, name),
    )


def _variable(copy: Copy) -> str:
    """Return the variable that has led to a library, empty if none has."""
    name = "LD_LIBRARY_PATH"
    folders = at_start(name).replace(";", ":").split(":")
    here = os.path.dirname(copy.path)
    return name if here in [os.path.realpath(folder) for folder in folders if folder] else ""


def _below(folder: str, name: str) -> str:
    """Return how the action ``preload`` names files, empty where no such path leads there."""
    from glob import escape

    entries = [os.path.join(os.path.abspath(e), "") for e in sys.path if isinstance(e, str)]
    # The innermost: a virtual environment often lies in the working folder.
    inside = max((entry for entry in entries if folder.startswith(entry)), key=len, default="")
    return f"{escape(folder[len(inside) :])}/{name}" if inside else ""


def judge_searches(core: Dispatch, copies: Iterable[Copy]) -> None:
    """Tell of libraries that such a search has loaded past those of the environment.

    Args:
        core: Is told.
        copies: What has just been loaded.
    """
    for copy in copies:
        if f"{copy.by}.".startswith(tuple(f"{one}." for one in SEARCHES)):
            later = _later_in_environment(copy)
            if later:
                title = runtime_of(copy.stem).title
                frame = frame_outside(caller_frame())
                core.reporter.found(findings.past_environment(copy, later, title), frame)


def _later_in_environment(copy: Copy) -> str:
    """Return the file of a later release in an environment of conda's, empty if there is none."""
    prefix = os.path.realpath(sys.prefix)
    is_own = copy.path.startswith((f"{prefix}/", *(f"{entry}/" for entry in sys.path if entry)))
    if is_own or not os.path.isdir(f"{prefix}/conda-meta"):
        return ""
    try:
        names = os.listdir(f"{prefix}/lib")
    except ours(OSError):
        return ""
    own = _major(copy.soname)
    found = {_major(name): name for name in names if stem_of(name) == copy.stem}
    last = max(found, default=0)
    return f"{prefix}/lib/{found[last]}" if own and last > own else ""


def _major(name: str) -> int:
    """Return the number after ``.so``, 0 if there is none."""
    word = name.partition(".so.")[2].partition(".")[0]
    return int(word) if word.isdecimal() else 0


# --- Tells of a cuDNN that is older than the one a package was built for, when that is imported.
# XLA finds it out at the first computation on the GPU, and torch maps its own copy at its import:
# so it is looked at whenever one of these packages has been imported.
#
# Sources: the metadata of jax-cuda12-plugin, tensorflow, torch, onnxruntime-gpu and paddlepaddle-
# gpu; XLA's ``cuda_dnn.cc``, which wants the same major version of cuDNN and the same minor one or
# later.

# Module -> the distributions whose metadata tell what it was built for, the first that is there.
PACKAGES = {
    "jax": ("jax-cuda13-plugin", "jax-cuda12-plugin", "jaxlib"),
    "onnxruntime": ("onnxruntime-gpu",),
    "paddle": ("paddlepaddle-gpu",),
    "tensorflow": ("tensorflow",),
    "torch": ("torch",),
}
STEM = "libcudnn"
_WHEEL = re.compile(r"nvidia[-_.]cudnn[-_.]cu\d+", re.IGNORECASE)
_OF_NINE = 90000  # cuDNN's number for 9.0.0; 8.9.7 is 8907
_IN_VERSION = re.compile(r"\+cuda\d+\.cudnn(\d)(\d+)")  # jaxlib 0.4.23+cuda12.cudnn89


def wanted_by(
    package: str,
    version_of: Callable[[str], str | None],
    requires_of: Callable[[str], Iterable[str]],
) -> Want | None:
    """Return what a package was built for, None if its metadata do not tell.

    Args:
        package: One of `PACKAGES`.
        version_of: Returns the version of an installed distribution.
        requires_of: Returns the requirements of an installed distribution, in its words.
    """
    for dist in PACKAGES[package]:
        version = version_of(dist)
        if version is None:
            continue
        by = f"{dist} {version}"
        in_version = _IN_VERSION.search(version)
        if in_version:
            return Want(package, by, by, "", (int(in_version[1]), int(in_version[2])))
        # An extra that is for another CUDA counts as little as what is not installed.
        told = [one for one in map(_read, requires_of(dist)) if one]
        for said, wheel, least in sorted(told, key=lambda one: version_of(one[1]) is None):
            return Want(package, by, said, wheel, least)
    return None


def compiled_with(package: str, by: str, number: int) -> Want:
    """Return what a package was compiled with, by the number that cuDNN gives its releases.

    Args:
        package: One of `PACKAGES`.
        by: The distribution, with its version.
        number: As in 91301 for 9.13.1; before cuDNN 9 there is a digit less.
    """
    least = divmod(number // 100, 100 if number >= _OF_NINE else 10)
    return Want(package, by, f"cudnn>={least[0]}.{least[1]}", "", least)


def _read(requirement: str) -> tuple[str, str, Release] | None:
    """Return (the requirement, the wheel, the earliest release) of one on cuDNN."""
    if not _WHEEL.match(requirement):
        return None
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        one = Requirement(requirement)
    except InvalidRequirement:
        return None
    least = [
        tuple(int(word) for word in specifier.version.split(".")[:2] if word.isdecimal())
        for specifier in one.specifier
        if specifier.operator in ("==", ">=", "~=")
    ]
    return (f"{one.name}{one.specifier}", one.name, max(least)) if least else None


def is_older(release: Release, least: Release) -> bool:
    """Return True if a release is known, and earlier than what is wanted of its major version."""
    known = min(len(release), len(least))
    return known > 1 and release[0] == least[0] and release[:known] < least[:known]


class Wants:
    """Compares libraries with what packages were built for, and remembers what it has told.

    Args:
        core: Is told.
    """

    def __init__(self, core: Dispatch) -> None:
        self._core = core
        self._told: set[str] = set()  # distributions
        self._wants: dict[str, Want | None] = {}

    def judge(self, copies: Iterable[Copy]) -> None:
        """Compare what serves with what those want that were imported."""
        copies = list(copies)
        here = [name for name in PACKAGES if peek(sys.modules.get(name), "__spec__") is not None]
        facts = Facts()
        for name in here if has_driver() else ():
            if name not in self._wants:
                told = wanted_by(name, facts.version, requires_of)
                known = _compiled(name, facts)
                is_more = known and (told is None or is_older(told.least, known.least))
                self._wants[name] = known if is_more else told
            want = self._wants[name]
            if want is not None and want.by not in self._told:
                self._judge_one(want, copies, facts)

    def _judge_one(self, want: Want, copies: list[Copy], facts: Facts) -> None:
        soname = f"{STEM}.so.{want.least[0]}"
        serving = next((copy for copy in copies if copy.soname == soname), None)
        if serving is not None:
            release = version_of(serving.path, soname, runtime_of(STEM).wheel)
        else:
            words = ((want.wheel and facts.version(want.wheel)) or "").split(".")
            release = tuple(map(int, words)) if all(map(str.isdecimal, words)) else ()
            release = release or _of_conda(soname)
        if is_older(release, want.least):
            from cudaguard.features.duplicate_libraries import findings

            self._told.add(want.by)
            finding = findings.older_than_wanted(want, release, serving, conda=_is_condas())
            self._core.reporter.found(finding, caller_frame())


def _compiled(package: str, facts: Facts) -> Want | None:
    """Return what JAX was compiled with, by a function of its own that returns this constant."""
    versions = peek(sys.modules.get("jax._src.lib"), "cuda_versions") if package == "jax" else None
    function = peek(versions, "cudnn_build_version")
    try:
        number = function() if callable(function) else None
    except ours(Exception):
        return None
    by = f"jaxlib {facts.version('jaxlib') or ''}".strip()
    return compiled_with(package, by, number) if isinstance(number, int) else None


def _is_condas() -> bool:
    return os.path.isdir(os.path.join(sys.prefix, "conda-meta"))


def _of_conda(soname: str) -> tuple[int, ...]:
    """Return the release of a library that conda has installed, empty if it has none."""
    file = os.path.join(sys.prefix, "lib", soname)
    return version_of(file, soname, "") if _is_condas() and os.path.exists(file) else ()
