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
        what = f"ninja is installed in {folder}, and that folder is not on PATH."
        remedy = "put it there, or have the guard do so: cudaguard.install()"
        command = f'export PATH="$PATH:{folder}"'
    else:
        what, remedy, command = "There is no ninja.", "install it", "pip install ninja"
    return Finding(
        TOOLS,
        what,
        severity="info",
        consequence="torch.utils.cpp_extension.load() says 'Ninja is required'; builds by setup.py "
        "take longer",
        remedy=remedy,
        command=command,
    )


def no_compiler(name: str) -> Finding:
    """No C++ compiler."""
    return Finding(
        TOOLS,
        f"There is no C++ compiler {name}.",
        severity="info",
        consequence="extensions cannot be built here, and torch.compile fails on the CPU",
        remedy="install one",
        command="apt-get install g++",
    )


def no_toolkit(cuda: str) -> Finding:
    """No CUDA toolkit."""
    return Finding(
        TOOLS,
        f"There is no CUDA toolkit where torch looks for one, and it needs {cuda}.",
        severity="info",
        evidence=(
            "CUDA_HOME and CUDA_PATH are not set",
            "no nvcc is on PATH, and there is no /usr/local/cuda",
        ),
        consequence="extensions with CUDA sources cannot be built here; all else works",
        remedy=f"if you build such, install the CUDA toolkit {cuda}, and set CUDA_HOME",
        command="export CUDA_HOME=/usr/local/cuda",
    )  # fmt: skip


def old_lock(path: str, why: str, since: float) -> Finding:
    """A lock of which it cannot be told whether anybody holds it."""
    made = time.strftime("%Y-%m-%d %H:%M", time.localtime(since))
    return Finding(
        CACHE,
        f"There is a lock of {made}, {path}, and whether anybody builds there cannot be told: "
        f"{why}.",
        severity="info",
        consequence="if nobody does, torch waits for it without a limit and without a message",
        remedy="if nobody builds there, remove it",
        command=f"rm {shlex.quote(path)}",
    )
