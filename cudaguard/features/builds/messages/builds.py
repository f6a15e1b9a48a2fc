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
    "CUDA_HOME and CUDA_PATH were not set, no nvcc was on PATH and /usr/local/cuda did not exist "
    "when torch.utils.cpp_extension was imported"
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
    done = "removed" if is_removed else "found"
    return Finding(
        STALE,
        f"cudaguard {done} the lock {path}: the build that made it {_span(age)} ago has ended.",
        evidence=("no process has the lock open or works in its folder",),
        consequence="this process builds the extension."
        if is_removed
        else "torch waits for the lock to disappear, without a limit and without a message.",
        remedy="" if is_removed else "remove the lock",
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
        does = "holds the lock in" if state == "held" else "works in"
        what = f"This process waits for process {whom[0][0]}, which {does} {folder}."
        remedy = "wait; or, if that process hangs, end it"
    else:
        what = f"This process waits for the lock {path}, whose holder is unknown: {why}."
        remedy = "remove the lock if no process builds there"
    return Finding(
        WAITING,
        what,
        evidence=names,
        consequence="this process goes on when the lock is gone.",
        remedy=remedy,
        command=f"ps -fp {whom[0][0]}" if names else f"rm {shlex.quote(path)}",
    )


def why_unknown(state: str, elsewhere: str, hidden: tuple[int, ...]) -> str:
    """Return why a lock cannot be judged, as a part of a sentence."""
    if state == "elsewhere":
        return elsewhere
    if state == "hidden":
        return f"process {hidden[0]} cannot be inspected"
    if state == "foreign":
        return "its file belongs to another user"
    return "its time is too recent to tell"


def torch_without_cuda(torch: str) -> Finding:
    """CUDA sources, and a torch that can do nothing with them."""
    return Finding(
        NO_CUDA,
        f"CUDA sources cannot be built with torch {torch}, which is a build without CUDA.",
        severity="error",
        evidence=("torch.version.cuda is None",),
        consequence="torch fails with 'CUDA_HOME environment variable is not set', but setting it "
        "does not help.",
        remedy="install a torch with CUDA (https://pytorch.org/get-started/locally), or build "
        "without the CUDA sources",
        command=f"pip install --force-reinstall torch=={torch.partition('+')[0]}",
    )


def no_toolkit(wanted: str, others: tuple[str, ...]) -> Finding:
    """A torch with CUDA that finds no toolkit."""
    return Finding(
        NO_TOOLKIT,
        f"torch finds no CUDA toolkit to compile CUDA sources with; it needs CUDA {wanted}.",
        severity="error",
        evidence=(_NOWHERE,),
        consequence="the build fails: 'CUDA_HOME environment variable is not set'.",
        remedy=f"set CUDA_HOME to {others[0]} and start again"
        if others
        else f"install the CUDA toolkit {wanted} and set CUDA_HOME to its folder",
        command=f"export CUDA_HOME={shlex.quote(others[0] if others else '/usr/local/cuda')}",
    )


def incomplete_toolkit(home: str, lack: str, found_by: str, real: str) -> Finding:
    """A CUDA_HOME that is not the folder of a toolkit."""
    return Finding(
        NO_TOOLKIT,
        f"torch uses {home} as the CUDA toolkit, but it has {_LACKS[lack]}.",
        evidence=(f"found by {found_by}",),
        consequence="compiling or linking fails.",
        remedy=f"set CUDA_HOME to {real}, the toolkit of this nvcc"
        if real
        else "set CUDA_HOME to the folder of a complete toolkit",
        command=f"export CUDA_HOME={shlex.quote(real or '/usr/local/cuda')}",
    )


def other_cuda(nvcc: str, found_by: str, version: str, wanted: str, *, is_jit: bool) -> Finding:
    """An nvcc of another major version than torch's CUDA."""
    return Finding(
        OTHER_CUDA,
        f"nvcc is from CUDA {version}, but this torch is built for CUDA {wanted}.",
        evidence=(f"{nvcc}, found by {found_by}",),
        consequence="the module may load a second CUDA runtime beside torch's, and fail or compute "
        "wrong results. torch checks this in setup.py only."
        if is_jit
        else "torch refuses to build.",
        remedy=f"install the CUDA toolkit {wanted} and set CUDA_HOME to it, or install a torch for "
        f"CUDA {version.partition('.')[0]}",
        command=f"export CUDA_HOME=/usr/local/cuda-{wanted}",
    )


def refused_compiler(compiler: str, version: str, newest: int, cuda: str) -> Finding:
    """A host compiler that nvcc refuses."""
    return Finding(
        COMPILER,
        f"{compiler} is GCC {version}, but nvcc of CUDA {cuda} supports GCC {newest} at most.",
        consequence="nvcc stops with 'unsupported GNU version'.",
        remedy=f"install GCC {newest} and use it for the build",
        command=f"export CC=gcc-{newest} CXX=g++-{newest}",
    )


def out_of_date(library: str, reasons: tuple[str, ...], *, is_rebuilt: bool) -> Finding:
    """An extension in torch's cache that was built for something else."""
    return Finding(
        OUT_OF_DATE,
        f"{library} was built for another torch or is damaged"
        f"{', so it is compiled again' if is_rebuilt else ''}.",
        severity="info" if is_rebuilt else "warning",
        evidence=reasons,
        consequence=""
        if is_rebuilt
        else "ninja does not rebuild it. It may fail to load, or compute wrong results.",
        remedy="" if is_rebuilt else "delete its folder and build again",
        command="" if is_rebuilt else f"rm -r {shlex.quote(os.path.dirname(library))}",
        links=("https://github.com/pytorch/pytorch/issues/68905",),
    )


def would_not_load(check: ExtensionCheck) -> Finding:
    """What was just built, and cannot be imported."""
    # Some packages load a library for all, of their own accord, before they import what needs it.
    is_certain = check.cause != "own-source-missing"
    unless = "" if is_certain else ", unless its library is loaded with RTLD_GLOBAL before"
    name = os.path.basename(check.path)
    return Finding(
        WOULD_NOT_LOAD,
        f"{name} was built but will {'' if is_certain else 'probably '}not load: {check.message}.",
        severity="error" if is_certain else "warning",
        evidence=(check.path,),
        consequence=f"the import will fail{unless}.",
        remedy=check.remedy,
        command=f"cudaguard check-extension {shlex.quote(check.path)}",
    )


def no_such_entry(rule: str, place: str) -> Finding:
    """A part of torch that is called otherwise in this version."""
    return Finding(
        NO_ENTRY,
        f"cudaguard does not know {place} of this version of torch, and does not guard it.",
        rule=rule,
        severity="info",
        consequence="this part of a build runs as it would without cudaguard.",
    )


REMOVED = "removed, as the build that made it has ended"
NINJA = "extended by the folder of ninja for a build"


def compiled_again(reasons: Iterable[str]) -> str:
    """Return what has become of an extension that was built for something else."""
    return f"compiled again ({'; '.join(reasons)})"


def home_of_nvcc(real: str, nvcc: str, home: str) -> str:
    """Return what has become of the folder that torch takes for the toolkit."""
    return f"is {real}, the toolkit of {nvcc}, instead of {home}"


def variable_set(files: int) -> str:
    """Return what has become of a variable for a build."""
    return f"set for a build of {files} files"
