"""The lock of a build that was killed is taken over; a build without a GPU gets architectures."""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
import sys
import time

from cudaguard.core.barrier import ON_PURPOSE
from cudaguard.core.caller import frame_outside_of
from cudaguard.core.patterns import values_of
from cudaguard.core.replace import Replaced
from cudaguard.core.request import Done, WouldDo
from cudaguard.features.builds import findings
from cudaguard.features.builds.locks import YOUNG, Lock, command_of, identity, look, take_over
from cudaguard.files import ours
from cudaguard.system.modules import peek
from cudaguard.system.shareable import program_alone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cudaguard.core.permit import Permit
    from cudaguard.core.request import Request
    from cudaguard.model import Finding

    Make = Callable[[Request, Any, Permit], Any]

MODULE = "torch.utils.cpp_extension"
PATIENCE = 30.0  # seconds, until it is said for whom we wait
_BETWEEN_LOOKS = 5.0  # seconds: a look at all processes costs about ten milliseconds
_ARCHITECTURES = "TORCH_CUDA_ARCH_LIST"
_NVCC_ANSWERS = 20.0  # seconds; compilers behind wrappers and network file systems start slowly


def put_up(request: Request) -> None:
    """Replace what builds go through, as far as this torch has it."""
    cpp_extension: Any = sys.modules.get(request.name)
    if request.name != MODULE or cpp_extension is None or not sys.platform.startswith("linux"):
        return
    # From 2.14 on torch holds a lock that ends with its holder.
    if values_of(request.rule, "break_stale_locks") and "FileLock" not in vars(cpp_extension):
        _replace(request, peek(cpp_extension, "FileBaton"), "FileBaton.try_acquire", try_acquire)
    if values_of(request.rule, "prepare_builds"):
        _replace(request, cpp_extension, "_get_cuda_arch_flags", _flags_without_a_gpu)


def _replace(request: Request, owner: Any, path: str, make: Make) -> None:
    place, name = f"{MODULE}.{path}", path.rpartition(".")[2]
    original = peek(owner, name)
    if original is None:
        request.tell(WouldDo(findings.no_such_entry(request.rule.id, place)))
        return
    request.put(
        place, owner, lambda _, permit: Replaced(owner, name, make(request, original, permit))
    )


# --- which GPUs a build is for -------------------------------------------------------------------


def _flags_without_a_gpu(request: Request, original: Any, permit: Permit) -> Any:
    """Return torch's function, which without a visible GPU has nothing to build for, and fails."""

    @functools.wraps(original)
    def _get_cuda_arch_flags(*args: Any, **keywords: Any) -> Any:
        try:
            return original(*args, **keywords)
        except IndexError:
            found = _architectures() if permit.acts else []
            if not found:
                raise
        value = ";".join(f"{number // 10}.{number % 10}" for number in found) + "+PTX"
        how = findings.NO_GPU_IS_VISIBLE
        request.tell(Done(f"{_ARCHITECTURES}={value}", how, stays=False), frame_outside_of("torch"))
        kinds = [(number, f"sm_{number}") for number in found]
        kinds.append((found[-1], f"compute_{found[-1]}"))
        return sorted(f"-gencode=arch=compute_{number},code={kind}" for number, kind in kinds)

    return _get_cuda_arch_flags


def _architectures() -> list[int]:
    """Return what both torch and nvcc know, as in 90; nothing where the user has said otherwise."""
    if os.environ.get(_ARCHITECTURES):
        return []
    try:
        built_for = sys.modules["torch"]._C._cuda_getArchFlags().split()
        home = sys.modules[MODULE].CUDA_HOME or ""
        chosen = shlex.split(os.environ.get("PYTORCH_NVCC", ""))
        nvcc = chosen or [os.path.join(home, "bin", "nvcc")]
        said = subprocess.run(
            [*nvcc, "--list-gpu-arch"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=_NVCC_ANSWERS, check=True,
        ).stdout.split()  # fmt: skip
    except ours(AttributeError, OSError, ValueError, subprocess.SubprocessError):
        return []
    numbers = [re.fullmatch(r"sm_(\d+)", flag) for flag in built_for]
    return sorted(int(n[1]) for n in numbers if n is not None and f"compute_{n[1]}" in said)


# --- locks ---------------------------------------------------------------------------------------


def try_acquire(request: Request, original: Any, permit: Permit) -> Any:
    """Return another way for builds to acquire torch's lock.

    It comes back only once the lock is ours, or its holder has let it go.

    Args:
        request: Is told.
        original: ``torch.utils.file_baton.FileBaton.try_acquire``.
        permit: What may be done, at every call.
    """

    @functools.wraps(original)
    def try_acquire(self: Any) -> Any:
        acquired = original(self)
        is_for_build = sys._getframe(1).f_globals.get("__name__") == MODULE
        if acquired or not (is_for_build and permit.looks):
            return acquired
        try:
            taken = _wait(request, permit, os.path.abspath(self.lock_file_path), self.wait_seconds)
        except ON_PURPOSE:
            raise
        except ours(Exception) as error:
            request.reporter.broken("looking at the lock of a build", error)
            return acquired
        if taken is None:
            return acquired
        self.fd = taken
        return True

    return try_acquire


def _wait(request: Request, permit: Permit, path: str, pause: float) -> int | None:
    """Wait until a lock is let go (None), or take it from the dead (its descriptor)."""
    began = time.monotonic()
    next_look = began
    is_told = False
    while permit.looks and os.path.exists(path):  # it may be switched off meanwhile
        now = time.monotonic()
        if now >= next_look:
            next_look = now + _BETWEEN_LOOKS
            which, lock = identity(path), look(path)
            if which is None or lock is None:
                continue
            if lock.state == "young":
                next_look = now + max(pause, min(YOUNG, YOUNG - lock.age))  # clocks differ
            if lock.state == "stale" and permit.acts:
                taken = take_over(path, which)
                if taken is not None:
                    finding = findings.stale_lock(path, lock.age, is_removed=True)
                    done = Done(path, findings.REMOVED, left=finding)
                    request.tell(done, frame_outside_of("torch"))
                    return taken
                next_look = now  # somebody else is about to
            elif not is_told and (lock.state == "stale" or now - began >= PATIENCE):
                is_told = True
                request.tell(WouldDo(_waits_for(path, lock)), frame_outside_of("torch"))
        time.sleep(pause)
    return None


def _waits_for(path: str, lock: Lock) -> Finding:
    if lock.state == "stale":
        return findings.stale_lock(path, lock.age, is_removed=False)
    return findings.waiting(path, lock, " ".join(program_alone(command_of(lock.pid))))
