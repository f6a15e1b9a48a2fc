"""CG907, CG908: the tools for building extensions, and what earlier builds have left."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from glob import escape, glob

from cudaguard.core.checks import Check
from cudaguard.features.builds.locks import look
from cudaguard.features.builds.messages import builds as wording
from cudaguard.features.builds.messages import checks as ours
from cudaguard.features.builds.policy import is_other_major, is_to_be_rebuilt, state_of
from cudaguard.system import toolkit as probe
from cudaguard.system.extensions.judgement import check_extension
from cudaguard.system.site import Skipped
from cudaguard.system.torch_build import look_around

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudaguard.model import Finding
    from cudaguard.system.site import Result, Site

TOOLS, CACHE = ours.TOOLS, ours.CACHE
_DEFAULT_HOME = "/usr/local/cuda"
# The folders of torch's default cache: version of Python, ABI flags, CUDA.
_OF_PYTHON = re.compile(r"py(\d)(\d+)[a-z]*_")


def check_tools(site: Site) -> Result:
    """Look for what a build would use, where torch would."""
    torch = look_around()
    if not torch.torch:
        raise Skipped("torch is not installed")
    findings, seen = [], []
    if not shutil.which("ninja"):
        findings.append(ours.no_ninja(probe.ninja_folder()))
    cxx = site.environ.get("CXX") or "c++"
    if not shutil.which(shlex.split(cxx)[0]):
        findings.append(ours.no_compiler(cxx))
    if torch.cuda:
        home, found_by = _home(site)
        findings += _of_toolkit(site, home, found_by, torch.cuda)
        seen.append(f"CUDA_HOME {home or 'none'}")
    return findings, ", ".join([f"C++ compiler {cxx}", *seen])


def _home(site: Site) -> tuple[str, str]:
    """Return the folder that torch would take for the toolkit, and why."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if site.environ.get(name):
            return site.environ[name], name
    nvcc = shutil.which("nvcc")
    if nvcc:
        return os.path.dirname(os.path.dirname(nvcc)), f"{nvcc} on PATH"
    return (_DEFAULT_HOME, "default") if os.path.exists(_DEFAULT_HOME) else ("", "")


def _of_toolkit(site: Site, home: str, found_by: str, cuda: str) -> list[Finding]:
    if not home:
        return [ours.no_toolkit(cuda)]
    nvcc = os.path.join(home, "bin", "nvcc")
    lack = probe.lacks(home)
    if lack:
        real = probe.home_of(nvcc) if lack != "nvcc" else ""
        return [wording.incomplete_toolkit(home, lack, found_by, real).replace(id=TOOLS)]
    findings = []
    version = probe.cuda_version([nvcc])
    if is_other_major(version, cuda):
        told = wording.other_cuda(nvcc, found_by, version, cuda, is_jit=True)
        findings.append(told.replace(id=TOOLS, command=f"{shlex.quote(nvcc)} --version"))
    compiler = site.environ.get("CC") or site.environ.get("NVCC_CCBIN") or "gcc"
    newest = probe.newest_gcc(home)
    gcc = probe.gcc_version(compiler) if newest is not None else ""
    if newest is not None and gcc and int(gcc.partition(".")[0]) > newest:
        told = wording.refused_compiler(compiler, gcc, newest, version)
        findings.append(told.replace(id=TOOLS))
    return findings


def check_cache(site: Site) -> Result:
    """Look through torch's cache of JIT extensions."""
    root = site.environ.get("TORCH_EXTENSIONS_DIR") or os.path.join(
        site.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "torch_extensions"
    )
    if not os.path.isdir(root):
        raise Skipped(f"there is no {root}")
    try:
        os.listdir(root)  # one that cannot be read is no empty one
    except OSError as error:
        raise Skipped(f"{root} cannot be read: {error.strerror}") from None
    findings: list[Finding] = []
    locks = _below(root, "lock")
    for path in locks:
        findings += _of_lock(path)
    libraries = [path for path in _below(root, "*.so") if _is_ours(root, path)]
    for path in libraries:
        check = check_extension(path, assume_imported=("torch",))
        if check.ok is False and is_to_be_rebuilt(check.cause, is_stamped=False):
            told = wording.out_of_date(path, (check.message,), is_rebuilt=False)
            findings.append(told.replace(id=CACHE))
    return findings, f"{root}: extensions {len(libraries)}, locks {len(locks)}"


def _below(root: str, name: str) -> list[str]:
    levels = ("*", os.path.join("*", "*"))
    return [path for level in levels for path in glob(os.path.join(escape(root), level, name))]


def _is_ours(root: str, path: str) -> bool:
    """Return True if this Python would load a cached extension."""
    match = _OF_PYTHON.match(os.path.relpath(path, root))
    return match is None or f"{match[1]}.{match[2]}" == look_around().python


def _of_lock(path: str) -> list[Finding]:
    facts = look(path)
    if facts is None:  # gone meanwhile
        return []
    state = state_of(**facts._asdict())
    if state == "stale":
        return [wording.stale_lock(path, facts.age, is_removed=False).replace(id=CACHE)]
    if state in ("held", "in-use", "young"):
        return []
    why = wording.why_unknown(state, facts.elsewhere, facts.hidden)
    return [ours.old_lock(path, why, time.time() - facts.age)]


BUILD_TOOLS = Check(
    "CG907",
    "tools for building extensions",
    "ninja, the C++ compiler, nvcc and its toolkit where torch.utils.cpp_extension would look "
    "for them; `nvcc --version` and `gcc --version` are run, each with a time limit.",
    check_tools,
)


BUILD_CACHE = Check(
    "CG908",
    "cache of JIT extensions",
    "torch waits without a limit for the lock of a build that was killed, and does not notice "
    "that its cache was built for another torch (TORCH_EXTENSIONS_DIR, or "
    "~/.cache/torch_extensions).",
    check_cache,
)
