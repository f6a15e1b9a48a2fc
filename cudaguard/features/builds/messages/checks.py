"""The wording of what is missing for builds, beside `cudaguard.features.builds.messages.builds`."""

from __future__ import annotations

import shlex
import time

from cudaguard.model import Finding

TOOLS, CACHE = "CG907", "CG908"


def no_ninja(folder: str) -> Finding:
    """No ninja on PATH.

    Args:
        folder: Where this Python has one, empty if it has none.
    """
    if folder:
        what = f"ninja is installed in {folder}, but that folder is not on PATH."
        remedy = "add the folder to PATH, or call cudaguard.install(), which does so for builds"
        command = f'export PATH="$PATH:{folder}"'
    else:
        what, remedy, command = "ninja is not installed.", "install it", "pip install ninja"
    return Finding(
        TOOLS,
        what,
        severity="info",
        consequence="torch.utils.cpp_extension.load() fails with 'Ninja is required', and builds "
        "with setup.py take longer.",
        remedy=remedy,
        command=command,
    )


def no_compiler(name: str) -> Finding:
    """No C++ compiler."""
    return Finding(
        TOOLS,
        f"The C++ compiler {name} is not found on PATH.",
        severity="info",
        consequence="extensions cannot be built with it, and torch.compile may fail on the CPU.",
        remedy="install a C++ compiler, or set CXX to the one that is there",
        command="apt-get install g++",
    )


def no_toolkit(cuda: str) -> Finding:
    """No CUDA toolkit."""
    return Finding(
        TOOLS,
        f"torch finds no CUDA toolkit; to build CUDA sources it needs CUDA {cuda}.",
        severity="info",
        evidence=(
            "CUDA_HOME and CUDA_PATH are not set",
            "no nvcc is on PATH, and /usr/local/cuda does not exist",
        ),
        consequence="extensions with CUDA sources cannot be built here.",
        remedy=f"install the CUDA toolkit {cuda} and set CUDA_HOME, if you build extensions",
        command="export CUDA_HOME=/usr/local/cuda",
    )  # fmt: skip


def old_lock(path: str, why: str, since: float) -> Finding:
    """A lock of which it cannot be told whether anybody holds it."""
    made = time.strftime("%Y-%m-%d %H:%M", time.localtime(since))
    return Finding(
        CACHE,
        f"The holder of the lock {path} ({made}) is unknown: {why}.",
        severity="info",
        consequence="if its build was killed, torch waits for the lock without a limit and without "
        "a message.",
        remedy="remove the lock if no process builds there",
        command=f"rm {shlex.quote(path)}",
    )
