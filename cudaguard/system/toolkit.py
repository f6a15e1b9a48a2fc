"""The tools of a build: nvcc and its toolkit, the compilers, ninja.

What is asked of a compiler is asked by running it: a matter of milliseconds, at a build only.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from glob import glob

from cudaguard.files import ours, read_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_TIME = 20.0  # seconds; compilers behind wrappers and network file systems start slowly
_LIBRARIES = ("lib64", "lib", "lib/*-linux-gnu", "targets/*/lib")


def _said(*command: str) -> str:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=_TIME, check=False, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except ours(OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


def cuda_version(nvcc: Sequence[str]) -> str:
    """Return the CUDA version of a command that runs nvcc, as in ``13.0``; empty if unknown."""
    match = re.search(r"release (\d+\.\d+)", _said(*nvcc, "--version"))
    return match[1] if match else ""


def known_architectures(nvcc: Sequence[str]) -> tuple[str, ...]:
    """Return what a command that runs nvcc can build for, as in ``compute_90``."""
    return tuple(_said(*nvcc, "--list-gpu-arch").split())


def home_of(nvcc: str) -> str:
    """Return the folder of the complete toolkit that an nvcc belongs to; empty if there is none.

    The file may be a script, which tells where the program behind it looks, or a link.
    """
    match = re.search(r"^#\$ TOP=(.+)$", _said(nvcc, "--dryrun", "none.cu"), re.MULTILINE)
    found = [os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))]
    if match:
        found.insert(0, os.path.realpath(match[1].strip()))
    return next((home for home in found if not lacks(home)), "")


def compiler_of(nvcc: Sequence[str]) -> str:
    """Return the compiler that nvcc's own profile names, as Debian's does; empty if none."""
    said = _said(*nvcc, "--dryrun", "none.cu")
    match = re.search(r"^#\$ compiler-bindir=(.+)$", said, re.MULTILINE)
    found = match[1].strip() if match else ""
    return os.path.join(found, "gcc") if os.path.isdir(found) else found


def lacks(home: str, *, is_for_nvcc: bool = True) -> str:
    """Return what a folder lacks for builds with CUDA: ``nvcc``, ``headers``, ``libraries``.

    Args:
        home: The folder.
        is_for_nvcc: True if nvcc is to be there as well.
    """
    if is_for_nvcc and not os.path.exists(os.path.join(home, "bin", "nvcc")):
        return "nvcc"
    folders = [os.path.join(home, "include"), *glob(os.path.join(home, "targets/*/include"))]
    folders += _variable("CPATH") + _variable("CPLUS_INCLUDE_PATH")
    if not _is_in(folders, "cuda_runtime.h"):
        return "headers"
    folders = [folder for name in _LIBRARIES for folder in glob(os.path.join(home, name))]
    folders += [*_variable("LIBRARY_PATH"), *glob("/usr/lib/*-linux-gnu"), "/usr/lib64", "/usr/lib"]
    return "" if _is_in(folders, "libcudart.so") else "libraries"


def newest_gcc(home: str) -> int | None:
    """Return the newest major version of GCC that a toolkit takes, by its own header."""
    try:
        header = read_bytes(os.path.join(home, "include/crt/host_config.h"), 1 << 20)
    except ours(OSError, ValueError):
        return None
    match = re.search(rb"gcc versions later than (\d+) are not supported", header)
    return int(match[1]) if match else None


def gcc_version(compiler: str) -> str:
    """Return the version of a compiler that is GCC, as in ``12.2.0``; empty for any other."""
    if "Free Software Foundation" not in _said(compiler, "--version"):
        return ""
    return _said(compiler, "-dumpfullversion", "-dumpversion").strip()


def ninja_folder() -> str:
    """Return a folder with ninja that belongs to this Python; empty if it has none."""
    folders = [sysconfig.get_path("scripts"), os.path.join(sys.prefix, "bin")]
    if sys.executable:
        folders.append(os.path.dirname(sys.executable))
    for folder in dict.fromkeys(folders):
        file = os.path.join(folder, "ninja")
        if os.path.isfile(file) and os.access(file, os.X_OK):
            return folder
    return ""


def _variable(name: str) -> list[str]:
    return [folder for folder in os.environ.get(name, "").split(":") if folder]


def _is_in(folders: Sequence[str], name: str) -> bool:
    return any(os.path.exists(os.path.join(folder, name)) for folder in folders)
