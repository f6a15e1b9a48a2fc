"""Tells what is wrong where two files of one library are here, or another than was meant."""

from __future__ import annotations

import sys

from cudaguard.core.caller import caller_frame, frame_outside, is_importing
from cudaguard.core.reports import LATER
from cudaguard.elf.library_version import is_same_build, version_of
from cudaguard.elf.process import at_start
from cudaguard.errors import ImportOrderError
from cudaguard.features.duplicate_libraries import messages as wording
from cudaguard.features.duplicate_libraries import policy
from cudaguard.features.duplicate_libraries.policy import folder_of
from cudaguard.files import os, ours
from cudaguard.system.runtimes import runtime_of, stem_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudaguard.core.dispatch import Dispatch
    from cudaguard.features.duplicate_libraries.policy import Copy, Stray
    from cudaguard.model import Finding, Severity

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
        return wording.rivals(first, second, runtime.rival, is_allowed=is_allowed)
    if not policy.is_fault(kind, first.stem):
        return wording.harmless(first, second, runtime.title, versions, kind)
    subject, cure = (runtime.title, runtime.danger), _cure(second, first, first.by)
    return wording.older_first(first, second, versions, subject, cure, _severity(first))


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
            finding = wording.mixed(
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
        finding = wording.another_file(
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


def _cure(wanted: Copy, other: Copy, by: str) -> wording.Precedence:
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
    return wording.Precedence(
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
                core.reporter.found(wording.past_environment(copy, later, title), frame)


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
