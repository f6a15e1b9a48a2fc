"""What a build needs: ninja, a toolkit, compilers, variables. Set where certain, else told of."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from glob import glob

from cudaguard.core.caller import frame_outside_of
from cudaguard.core.replace import Replaced
from cudaguard.core.request import Done, WouldDo
from cudaguard.features.builds import policy
from cudaguard.features.builds.messages import builds as wording
from cudaguard.features.builds.repair.actions import VARIABLES
from cudaguard.system import toolkit as probe
from cudaguard.system.limits import available_memory, cores

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from cudaguard.core.permit import Permit
    from cudaguard.core.request import Request
    from cudaguard.model import Finding

_ARCHITECTURES = "TORCH_CUDA_ARCH_LIST"
_VERB = "prepare_builds"
_PLACE = "torch.utils.cpp_extension.CUDA_HOME"


class Toolkit:
    """The CUDA toolkit that torch has found, looked at once it is wanted.

    Args:
        request: Is told.
        module: ``torch.utils.cpp_extension``.
    """

    def __init__(self, request: Request, module: Any) -> None:
        self._request = request
        self._module = module
        self._seen: set[str | None] = set()
        self._guessed_by: dict[str | None, str] = {}  # folders that we have found

    @property
    def home(self) -> str | None:
        """The folder."""
        home = self._module.CUDA_HOME
        return None if home is None else str(home)

    @property
    def nvcc(self) -> list[str]:
        """The command that torch runs."""
        chosen = shlex.split(os.environ.get("PYTORCH_NVCC", ""))
        return chosen or [os.path.join(self.home or "", "bin", "nvcc")]

    @property
    def found_by(self) -> str:
        """Why torch takes this one."""
        if os.environ.get("PYTORCH_NVCC"):
            return "PYTORCH_NVCC"
        if self.home in self._guessed_by:
            return self._guessed_by[self.home]
        for name in ("CUDA_HOME", "CUDA_PATH"):
            if os.environ.get(name) == self.home:
                return name
        on_path = shutil.which("nvcc")
        if on_path and os.path.dirname(os.path.dirname(on_path)) == self.home:
            return f"{on_path} on PATH"
        return "default, or set by the program"

    def is_wanted(self) -> None:
        """Look whether the folder is complete; put another in its place where that is certain."""
        torch: Any = sys.modules["torch"]
        home = self.home
        if torch.version.hip or home in self._seen:
            return
        self._seen.add(home)
        if not torch.version.cuda:
            self.tell(wording.torch_without_cuda(str(torch.__version__)))
        elif home is None:
            others = sorted(glob("/usr/local/cuda-*"), reverse=True)
            wanted = torch.version.cuda
            fitting = [one for one in others if one.endswith(f"-{wanted}")]
            of_major = [one for one in others if f"-{wanted.partition('.')[0]}." in one]
            usable = tuple(one for one in fitting or of_major if not probe.lacks(one))
            self.tell(wording.no_toolkit(torch.version.cuda, usable))
        else:
            lack = probe.lacks(home, is_for_nvcc=not os.environ.get("PYTORCH_NVCC"))
            if lack:
                self._replace_or_tell(home, lack)

    def _replace_or_tell(self, home: str, lack: str) -> None:
        nvcc = os.path.join(home, "bin", "nvcc")
        real = probe.home_of(nvcc)
        found_by = self.found_by
        # Torch has guessed the folder from the place of an nvcc that is a link or a script.
        if real and found_by.endswith("on PATH") and self._request.permit.acts:
            self._guessed_by[real] = found_by
            module = self._module
            self._request.put(_PLACE, module, lambda *_: Replaced(module, "CUDA_HOME", real))
            how = wording.home_of_nvcc(real, nvcc, home)
            self._request.tell(Done(_PLACE, how, verb=_VERB, stays=False))
            return
        self.tell(wording.incomplete_toolkit(home, lack, found_by, real))

    def tell(self, finding: Finding) -> None:
        """Warn of something, at the line that asks for the build."""
        self._request.tell(WouldDo(finding), frame_outside_of("torch"))


def variables_for(
    request: Request,
    permit: Permit,
    toolkit: Toolkit,
    sources: Sequence[str],
    flags: Sequence[str],
    *,
    with_cuda: bool,
    is_jit: bool,
) -> dict[str, str]:
    """Look at the tools of a build, and return the variables to be set for it.

    Args:
        request: Is told.
        permit: What may be done now.
        toolkit: What torch has found.
        sources: The files that are compiled at one time.
        flags: For nvcc.
        with_cuda: True if nvcc is used.
        is_jit: By ``load()``, not by a ``setup.py``.
    """
    torch: Any = sys.modules["torch"]
    if with_cuda and torch.version.cuda:
        toolkit.is_wanted()
        with_toolkit = toolkit.home is not None
    else:
        with_toolkit = False
    if with_toolkit:
        _compare(toolkit, torch.version.cuda, flags, is_jit=is_jit)
    if not permit.acts:
        return {}
    found = path_with_ninja(request)
    if with_toolkit:
        found.update(_architectures(torch, toolkit, flags))
    if not (VARIABLES.theirs("MAX_JOBS") or "").isdigit():
        memory = available_memory()
        jobs = policy.jobs(memory, cores(), len(sources), with_cuda=with_toolkit)
        if jobs is not None:
            found["MAX_JOBS"] = str(jobs)
    for name, value in found.items():
        if name != "PATH":
            how = wording.variable_set(len(sources))
            request.tell(Done(f"{name}={value}", how, verb=_VERB, stays=False))
    return found


def path_with_ninja(request: Request) -> dict[str, str]:
    """Return a ``PATH`` on which ninja is found; nothing where it is, or none is installed.

    The folder comes last: whatever else is found now is found as before.
    """
    path = VARIABLES.theirs("PATH") or ""
    if shutil.which("ninja", path=path or os.defpath):
        return {}
    folder = probe.ninja_folder()
    if not folder:
        return {}
    request.tell(Done(f"PATH with {folder}", wording.NINJA, verb=_VERB, stays=False))
    return {"PATH": os.pathsep.join((path or os.defpath, folder))}


def _compare(toolkit: Toolkit, wanted: str, flags: Sequence[str], *, is_jit: bool) -> None:
    nvcc = toolkit.nvcc
    version = probe.cuda_version(nvcc)
    if policy.is_other_major(version, wanted):
        found_by = toolkit.found_by
        toolkit.tell(wording.other_cuda(nvcc[-1], found_by, version, wanted, is_jit=is_jit))
    chosen = ("-ccbin", "--compiler-bindir", "-allow-unsupported-compiler",
              "--allow-unsupported-compiler")  # fmt: skip
    more = [os.environ.get(name, "") for name in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")]
    if any(word in flag for flag in (*flags, *more) for word in chosen):
        return
    # Torch hands on CC; the second one is nvcc's own.
    compiler = os.environ.get("CC") or os.environ.get("NVCC_CCBIN") or "gcc"
    newest = probe.newest_gcc(toolkit.home or "")
    gcc = probe.gcc_version(compiler) if newest is not None else ""
    if newest is None or not _is_later(gcc, newest):
        return
    # Only now, as it takes another run of nvcc.
    of_profile = "" if os.environ.get("CC") else probe.compiler_of(nvcc)
    if of_profile:
        compiler, gcc = of_profile, probe.gcc_version(of_profile)
    if _is_later(gcc, newest):
        toolkit.tell(wording.refused_compiler(compiler, gcc, newest, version))


def _is_later(gcc: str, newest: int) -> bool:
    return bool(gcc) and int(gcc.partition(".")[0]) > newest


def _architectures(torch: Any, toolkit: Toolkit, flags: Sequence[str]) -> dict[str, str]:
    """Return ``TORCH_CUDA_ARCH_LIST`` where torch would have to start CUDA to know, or fail."""
    if VARIABLES.theirs(_ARCHITECTURES) or any("arch" in flag for flag in flags):
        return {}
    if torch.cuda.is_initialized():  # torch can ask the devices as well
        return {}
    from cudaguard.system.devices import compute_capabilities

    built_for = torch._C._cuda_getArchFlags().split()
    capabilities = compute_capabilities()
    is_certain = len(set(capabilities)) == 1 or "CUDA_VISIBLE_DEVICES" not in os.environ
    value = policy.architectures(capabilities, built_for) if is_certain else ""
    if not capabilities and torch.cuda.device_count() == 0:
        value = policy.every_architecture(built_for, probe.known_architectures(toolkit.nvcc))
    return {_ARCHITECTURES: value} if value else {}
