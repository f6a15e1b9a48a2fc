"""Builds of extensions where no GPU is visible: torch gets the architectures to build for."""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
import sys

from cudaguard.core.request import Done
from cudaguard.files import own_errors
from cudaguard.hooks.caller import frame_outside_of
from cudaguard.system.modules import peek

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cudaguard.core.permit import Permit
    from cudaguard.core.request import Request

MODULE = "torch.utils.cpp_extension"
_FUNCTION = "_get_cuda_arch_flags"
_ARCHITECTURES = "TORCH_CUDA_ARCH_LIST"
_NVCC_ANSWERS = 20.0  # seconds; compilers behind wrappers and network file systems start slowly


def prepare_builds(request: Request) -> None:
    """Replace torch's choice of architectures, if this torch has it under the known name."""
    cpp_extension = sys.modules.get(request.name)
    original = peek(cpp_extension, _FUNCTION)
    if request.name == MODULE and original is not None and sys.platform.startswith("linux"):
        request.replacements.put(
            request,
            f"{MODULE}.{_FUNCTION}",
            cpp_extension,
            _FUNCTION,
            lambda _, permit: with_architectures(request, original, permit),
        )


def with_architectures(request: Request, original: Any, permit: Permit) -> Any:
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
        how = "taken for a build, as no GPU is visible that torch could build for"
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
    except own_errors(AttributeError, OSError, ValueError, subprocess.SubprocessError):
        return []
    numbers = [re.fullmatch(r"sm_(\d+)", flag) for flag in built_for]
    return sorted(int(n[1]) for n in numbers if n is not None and f"compute_{n[1]}" in said)
