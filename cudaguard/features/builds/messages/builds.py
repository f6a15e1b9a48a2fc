"""What is said of builds with ``torch.utils.cpp_extension``."""

from __future__ import annotations

import os
import shlex

from cudaguard.model import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudaguard.elf.extension_check import ExtensionCheck

STALE, WAITING = "CG885", "CG886"
NO_CUDA, NO_TOOLKIT, OTHER_CUDA, COMPILER = "CG887", "CG888", "CG889", "CG890"
OUT_OF_DATE, WOULD_NOT_LOAD = "CG891", "CG892"
NO_ENTRY = "CG836"
_LOCK_LINK = "https://github.com/pytorch/pytorch/pull/190543"
_NOWHERE = (
    "when torch.utils.cpp_extension was imported, CUDA_HOME and CUDA_PATH were not set, no nvcc "
    "was on PATH, and there was no /usr/local/cuda"
)
_LACKS = {
    "nvcc": "no bin/nvcc",
    "headers": "no include/cuda_runtime.h",
    "libraries": "no libcudart.so to link",
}


def _span(seconds: float) -> str:
    for length, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"


def stale_lock(path: str, age: float, *, is_removed: bool) -> Finding:
    """A lock whose builder was killed."""
    done = "was removed" if is_removed else "is in the way"
    return Finding(
        STALE,
        f"The lock {path} {done}: it was left {_span(age)} ago by a build that was killed.",
        evidence=("no process has it open, and none works in its folder",),
        consequence=(
            ""
            if is_removed
            else "torch waits for it to disappear, without a limit and without a message"
        ),
        remedy="this process builds in its place" if is_removed else "remove it",
        command="" if is_removed else f"rm {shlex.quote(path)}",
        links=(_LOCK_LINK,),
    )


def waiting(path: str, state: str, whom: tuple[tuple[int, str], ...], why: str) -> Finding:
    """A lock that is waited for.

    Args:
        path: The lock.
        state: See `cudaguard.features.builds.policy.state_of`.
        whom: Processes that hold it, with their command lines.
        why: Why it cannot be told whether anybody does.
    """
    names = tuple(f"process {pid}: {command or 'unknown'}" for pid, command in whom)
    folder = os.path.dirname(path)
    if state in ("held", "in-use"):
        does = "builds in" if state == "held" else "works in"
        what = f"This process waits for process {whom[0][0]}, which {does} {folder}."
        remedy = "wait; if that process hangs, end it, and the build goes on here"
    else:
        what = (
            f"This process waits for the lock {path}, and whether anybody builds there cannot be "
            f"told: {why}."
        )
        remedy = "if nobody builds there, remove it"
    return Finding(
        WAITING,
        what,
        evidence=names,
        consequence="the build, and this process, go on once the lock is gone",
        remedy=remedy,
        command="" if names and state == "held" else f"rm {shlex.quote(path)}",
    )


def why_unknown(state: str, elsewhere: str, hidden: tuple[int, ...]) -> str:
    """Return why a lock cannot be judged, as a part of a sentence."""
    if state == "elsewhere":
        return elsewhere
    if state == "hidden":
        return f"process {hidden[0]} may not be looked at"
    return (
        "it is the file of another user"
        if state == "foreign"
        else "by its time it has only just been made, or will be"
    )


def torch_without_cuda(torch: str) -> Finding:
    """CUDA sources, and a torch that can do nothing with them."""
    return Finding(
        NO_CUDA,
        f"An extension with CUDA sources is to be built, and torch {torch} is a build for the CPU.",
        severity="error",
        evidence=("torch.version.cuda is None",),
        consequence=(
            "torch says 'CUDA_HOME environment variable is not set', and setting it would not help"
        ),
        remedy="install a torch with CUDA (https://pytorch.org/get-started/locally), or build "
        "without the CUDA sources",
    )


def no_toolkit(wanted: str, others: tuple[str, ...]) -> Finding:
    """A torch with CUDA that finds no toolkit."""
    return Finding(
        NO_TOOLKIT,
        f"CUDA sources are to be compiled, and torch finds no CUDA toolkit; it needs {wanted}.",
        severity="error",
        evidence=(_NOWHERE,),
        consequence="the build fails: CUDA_HOME environment variable is not set",
        remedy=f"set CUDA_HOME to {others[0]}, and start again"
        if others
        else f"install the CUDA toolkit {wanted}, and set CUDA_HOME to its folder",
        command=f"export CUDA_HOME={shlex.quote(others[0])}" if others else "",
    )


def incomplete_toolkit(home: str, lack: str, found_by: str, real: str) -> Finding:
    """A CUDA_HOME that is not the folder of a toolkit."""
    return Finding(
        NO_TOOLKIT,
        f"torch takes {home} for the CUDA toolkit, and it has {_LACKS[lack]}.",
        evidence=(f"found by {found_by}",),
        consequence="compiling or linking fails",
        remedy=f"set CUDA_HOME to {real}, where this nvcc comes from"
        if real
        else "set CUDA_HOME to the folder of a complete toolkit",
        command=f"export CUDA_HOME={shlex.quote(real)}" if real else "",
    )


def other_cuda(nvcc: str, found_by: str, version: str, wanted: str, *, is_jit: bool) -> Finding:
    """An nvcc of another major version than torch's CUDA."""
    return Finding(
        OTHER_CUDA,
        f"nvcc is of CUDA {version}, and this torch is built for CUDA {wanted}.",
        evidence=(f"{nvcc}, found by {found_by}",),
        consequence=(
            "torch checks that in setup.py only: the module may load a second CUDA runtime beside "
            "torch's, and fail, or compute wrong results"
            if is_jit
            else "torch refuses to build"
        ),
        remedy=f"install the CUDA toolkit {wanted} and set CUDA_HOME to it, or a torch for CUDA "
        f"{version.partition('.')[0]}",
    )


def refused_compiler(compiler: str, version: str, newest: int, cuda: str) -> Finding:
    """A host compiler that nvcc refuses."""
    return Finding(
        COMPILER,
        f"{compiler} is GCC {version}, and nvcc of CUDA {cuda} takes none later than {newest}.",
        consequence="nvcc stops with 'unsupported GNU version'",
        remedy=f"install GCC {newest} and have nvcc use it",
        command=f"export CC=gcc-{newest} CXX=g++-{newest}",
    )


def out_of_date(library: str, reasons: tuple[str, ...], *, is_rebuilt: bool) -> Finding:
    """An extension in torch's cache that was built for something else."""
    return Finding(
        OUT_OF_DATE,
        f"{library} was built for another torch, or is damaged"
        f"{', and is compiled again' if is_rebuilt else ''}.",
        severity="info" if is_rebuilt else "warning",
        evidence=reasons,
        consequence=""
        if is_rebuilt
        else "ninja does not notice: it fails when it is loaded, or computes wrong results",
        remedy="" if is_rebuilt else "delete its folder",
        command="" if is_rebuilt else f"rm -r {shlex.quote(os.path.dirname(library))}",
        links=("https://github.com/pytorch/pytorch/issues/68905",),
    )


def would_not_load(check: ExtensionCheck) -> Finding:
    """What was just built, and cannot be imported."""
    # Some packages load a library for all, of their own accord, before they import what needs it.
    is_certain = check.cause != "own-source-missing"
    alone = "" if is_certain else " alone"
    unless = "" if is_certain else ", unless the library that has it was loaded with RTLD_GLOBAL"
    return Finding(
        WOULD_NOT_LOAD,
        f"The build went well, and its result will not load{alone}: {check.message}.",
        severity="error" if is_certain else "warning",
        evidence=(check.path,),
        consequence=f"the import will fail{unless}",
        remedy=check.remedy,
        command=f"cudaguard check-extension {shlex.quote(check.path)}",
    )


def no_such_entry(rule: str, place: str) -> Finding:
    """A part of torch that is called otherwise in this version."""
    return Finding(
        NO_ENTRY,
        f"{place} is not there in this version of torch, and is not looked after.",
        rule=rule,
        severity="info",
        consequence="builds go as they would without cudaguard, as far as that part matters",
    )


REMOVED = "left by a build that was killed, removed"
NINJA = "for a build, as ninja is there and not on PATH"


def compiled_again(reasons: Iterable[str]) -> str:
    """Return what has become of an extension that was built for something else."""
    return f"compiled again ({'; '.join(reasons)})"


def home_of_nvcc(real: str, nvcc: str, home: str) -> str:
    """Return what has become of the folder that torch takes for the toolkit."""
    return f"is {real}, where {nvcc} comes from, and not {home}"


def variable_set(files: int) -> str:
    """Return what has become of a variable for a build."""
    return f"set for a build of {files} files"
