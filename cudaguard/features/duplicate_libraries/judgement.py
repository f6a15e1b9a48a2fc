"""Tells what is wrong where two files of one library are here, or another than was meant."""

from __future__ import annotations

import re
import sys

from cudaguard.core.reports import LATER
from cudaguard.elf.process import at_start, library_path
from cudaguard.errors import ImportOrderError
from cudaguard.files import escape, os, own_errors
from cudaguard.hooks.caller import caller_frame, is_importing
from cudaguard.model import TYPE_CHECKING
from cudaguard.system import peek
from cudaguard.system.facts import Facts, numbers_of, requires_of
from cudaguard.system.preload import has_driver
from cudaguard.system.runtimes import (
    LIBRARY_PATH,
    CudnnRequirement,
    first_of_each,
    is_same_build,
    version_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudaguard.core.dispatch import Dispatch
    from cudaguard.core.findings import Finding
    from cudaguard.system.runtimes import Copy, Stray

    Release = tuple[int, ...]

_PROGRAM = ("", "__main__", "__mp_main__")
_YES = ("1", "true", "t", "yes", "y", "on")


def judge(
    core: Dispatch,
    copies: list[Copy],  # all that are in the process, in the order in which they were mapped
    new: list[Copy],  # those of them that have just come
    strays: list[Stray],  # libraries that get another file than they were meant to
    # folders and pairs of them that were reported: once is enough. They are added to
    reported: set[tuple[str, ...]],
    *,
    is_load: bool,  # True if it was a load that was seen
) -> None:
    """Report what is wrong with libraries just mapped, beside those that were there before.

    Raises:
        ImportOrderError: in `strict`, from an import.
    """
    frame = caller_frame()
    can_raise = is_load and is_importing()
    refused: ImportOrderError | None = None
    for finding, copy, other in (*_pairs(copies, new), *_mixtures(copies, new), *_astray(strays)):
        folders = {(copy.runtime.title, *sorted((copy.folder, other.folder))), (copy.folder,)}
        is_known = not reported.isdisjoint(folders)
        reported |= folders
        later = None if can_raise or refused is not None else LATER
        is_news = core.reporter.found(finding, frame, stop=later, carried_by_error=is_known)
        if is_news and refused is None:
            refused = ImportOrderError(finding.as_error(), path=copy.path)
    if refused is not None and can_raise:
        core.reporter.stop(refused)


def _pairs(copies: list[Copy], new: list[Copy]) -> Iterator[tuple[Finding, Copy, Copy]]:
    for at, second in enumerate(copies):
        for first in copies[:at] if second in new else ():
            finding = _fault_of(first, second) if first.is_like(second) else None
            if finding is not None:
                yield finding, first, second
                break


def _fault_of(first: Copy, second: Copy) -> Finding | None:
    """Return what is wrong with two files of one library, of which the first was mapped first."""
    if first.identity == second.identity:
        return None
    from cudaguard.features.duplicate_libraries import findings

    rival = first.runtime.rival
    if rival and rival == second.runtime.rival:
        is_allowed = os.environ.get(first.runtime.allowed_by, "").lower() in _YES
        return None if is_allowed else findings.rivals(first, second)
    # Under names of their own each package has its copy.
    if first.soname != second.soname or not _is_older(first, second):
        return None
    return findings.older_first(first, second, _remedy(second, first, first.by))


def _is_older(used: Copy, meant: Copy) -> bool:
    """Return True if a library is older than another one, and nobody wants it so."""
    is_older = not used.runtime.rival and is_older_release(used.release, meant.release)
    return is_older and not _is_preloaded(used) and not is_same_build(used.path, meant.path)


def is_older_release(first: Release, second: Release) -> bool:
    """Return True if the first of two releases is earlier, as far as both are known."""
    length = min(len(first), len(second))
    return first[:length] < second[:length]


def _is_same_release(first: Release, second: Release) -> bool:
    is_other = is_older_release(first, second) or is_older_release(second, first)
    return bool(first and second) and not is_other


def _is_preloaded(copy: Copy) -> bool:
    """Return True if LD_PRELOAD names a library: it is there because somebody wants it so."""
    preloaded = at_start("LD_PRELOAD").replace(":", " ").split()
    names = (os.path.realpath(copy.path), os.path.basename(copy.path))
    return any(name in names or os.path.realpath(name) in names for name in preloaded)


def _mixtures(copies: list[Copy], new: list[Copy]) -> Iterator[tuple[Finding, Copy, Copy]]:
    from cudaguard.features.duplicate_libraries import findings

    used = first_of_each(copies)
    reported = set()
    for copy in new:
        for other in _parts_beside(copy, used) if used.get(copy.soname) is copy else ():
            part_of = copy.runtime.part_of
            is_same = _is_same_release(other.release, copy.release)
            if is_same or part_of in reported or copy.folder == other.folder:
                continue
            reported.add(part_of)
            wanted, unwanted = (copy, other) if has_variable(other.path) else (other, copy)
            by = min(copy, other, key=copies.index).by
            yield findings.mixed(wanted, unwanted, _remedy(wanted, unwanted, by)), unwanted, wanted


def _parts_beside(copy: Copy, used: dict[str, Copy]) -> list[Copy]:
    """Return the parts of its set that a copy works with: those of its soname's version."""
    version = copy.soname.partition(".so")[2]
    # One with a name of its own is asked for by those it was bundled for.
    return [
        other
        for other in used.values()
        if other is not copy
        and copy.is_part_with(other)
        and [copy.soname, other.soname] == [f"{part.stem}.so{version}" for part in (copy, other)]
    ]


def _astray(strays: list[Stray]) -> Iterator[tuple[Finding, Copy, Copy]]:
    from cudaguard.features.duplicate_libraries import findings

    first: dict[tuple[Copy, Copy], Stray] = {}
    for stray in strays:
        first.setdefault((stray.used, stray.meant), stray)
    for (used, meant), stray in first.items():
        if stray.is_part:
            is_same = _is_same_release(used.release, meant.release)
            is_wrong = not (is_same or is_same_build(used.path, meant.path))
        else:
            is_wrong = _is_older(used, meant)
        if is_wrong:
            yield findings.another_file(stray, _remedy(meant, used, used.by)), used, meant


def _remedy(wanted: Copy, other: Copy, by: str) -> str:
    """Return how a file comes before another one, which `by` was the first to load."""
    from cudaguard.features.duplicate_libraries import findings

    package = by.partition(".")[0]
    folder, name = os.path.split(os.path.abspath(wanted.path))
    part_of = wanted.runtime.part_of
    if part_of:  # all parts, or they come from somewhere else again
        name = f"lib{part_of}*.so{wanted.soname.partition('.so')[2]}"
    first = findings.load_first(
        wanted.path, name, "" if package in _PROGRAM else package, _below(folder, name)
    )
    if not has_variable(other.path):
        return first
    folder = os.path.dirname(other.path)
    return f"start the program without {folder} in {LIBRARY_PATH}; or {first}"


def has_variable(path: str) -> bool:
    """Return True if LD_LIBRARY_PATH has led to a library."""
    return os.path.dirname(path) in map(os.path.realpath, library_path())


def _below(folder: str, name: str) -> str:
    """Return how the action ``preload`` names files, empty where no such path leads there."""
    entries = [os.path.join(os.path.abspath(e), "") for e in sys.path if isinstance(e, str)]
    # The innermost: a virtual environment often lies in the working folder.
    inside = max((entry for entry in entries if folder.startswith(entry)), key=len, default="")
    return f"{escape(folder[len(inside) :])}/{name}" if inside else ""


# --- A cuDNN that is older than the one a package was built for -----------------------------------
# XLA finds it out at the first computation on the GPU, and torch maps its own copy at its import:
# so it is looked at whenever one of these packages has been imported.
#
# Sources: the metadata of jax-cuda12-plugin, tensorflow, torch, onnxruntime-gpu and
# paddlepaddle-gpu; XLA's ``cuda_dnn.cc``, which wants the same major version of cuDNN and the same
# minor one or later.

# Module -> the distributions whose metadata tell what it was built for, the first that is there.
PACKAGES = {
    "jax": ("jax-cuda13-plugin", "jax-cuda12-plugin", "jaxlib"),
    "onnxruntime": ("onnxruntime-gpu",),
    "paddle": ("paddlepaddle-gpu",),
    "tensorflow": ("tensorflow",),
    "torch": ("torch",),
}
_WHEEL = re.compile(r"(nvidia[-_.]cudnn[-_.]cu\d+)([^;]*)", re.IGNORECASE)
_LEAST = re.compile(r"(?:==|>=|~=)(\d+)\.(\d+)")
_OF_NINE = 90000  # cuDNN's number for 9.0.0; 9.13.1 is 91301, and 8.9.7 is 8907


def _requirement_of(package: str, facts: Facts) -> CudnnRequirement | None:
    """Return what one of `PACKAGES` was built for, None if its metadata do not tell."""
    for dist in PACKAGES[package]:
        version = facts.version(dist)
        required = [asked for asked in map(cudnn_of, requires_of(dist)) if asked] if version else []
        # An extra that is for another CUDA counts as little as what is not installed.
        for said, wheel, least in sorted(required, key=lambda r: facts.version(r[1]) is None):
            return CudnnRequirement(package, f"{dist} {version}", said, wheel, least)
    return None


def cudnn_of(requirement: str) -> tuple[str, str, Release] | None:
    """Return (the requirement, the wheel, the earliest release) of one on cuDNN."""
    match = _WHEEL.match(requirement)
    asked = match[2].replace(" ", "").strip("()") if match else ""
    least = [(int(major), int(minor)) for major, minor in _LEAST.findall(asked)]
    return (f"{match[1]}{asked}", match[1], max(least)) if match and least else None


def is_older(release: Release, least: Release) -> bool:
    """Return True if a release is known, and earlier than what is wanted of its major version."""
    is_of_major = len(release) > 1 and release[0] == least[0]
    return is_of_major and is_older_release(release, least)


class CudnnRequirements:
    """Compares libraries with what packages were built for, and remembers what it has reported."""

    def __init__(self, core: Dispatch) -> None:
        self._core = core
        self._reported: set[str] = set()  # distributions
        self._requirements: dict[str, CudnnRequirement | None] = {}

    def judge(self, copies: Iterable[Copy]) -> None:
        """Compare the cuDNN that is first with what those want that were imported."""
        copies = list(copies)
        here = [name for name in PACKAGES if peek(sys.modules.get(name), "__spec__") is not None]
        facts = Facts()
        for name in here if has_driver() else ():
            if name not in self._requirements:
                required = _requirement_of(name, facts)
                self._requirements[name] = _compiled(facts, required) if name == "jax" else required
            want = self._requirements[name]
            if want is None or want.by in self._reported:
                continue
            soname = f"libcudnn.so.{want.least[0]}"
            loaded = next((copy for copy in copies if copy.soname == soname), None)
            is_condas = os.path.isdir(os.path.join(sys.prefix, "conda-meta"))
            release = numbers_of(facts.version(want.wheel) or "") if want.wheel else ()
            if loaded is not None:
                release = loaded.release
            elif not release and is_condas:
                release = version_of(os.path.join(sys.prefix, "lib", soname), soname)
            if is_older(release, want.least):
                self._reported.add(want.by)
                from cudaguard.features.duplicate_libraries import findings

                finding = findings.older_than_wanted(want, release, loaded, conda=is_condas)
                self._core.reporter.found(finding, caller_frame())


def _compiled(facts: Facts, required: CudnnRequirement | None) -> CudnnRequirement | None:
    """Return what JAX was compiled with, by its own function, or what metadata ask for if more."""
    function = peek(peek(sys.modules.get("jax._src.lib"), "cuda_versions"), "cudnn_build_version")
    try:
        number = function() if callable(function) else None
    except own_errors(Exception):
        number = None
    if not isinstance(number, int):
        return required
    least = divmod(number // 100, 100 if number >= _OF_NINE else 10)
    if required is not None and not is_older(required.least, least):
        return required
    by, said = f"jaxlib {facts.version('jaxlib') or ''}".strip(), f"cudnn>={least[0]}.{least[1]}"
    return CudnnRequirement("jax", by, said, "", least)
