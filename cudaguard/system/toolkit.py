"""Versions of nvcc and GCC, which are run for it."""

from __future__ import annotations

import os
import re
import subprocess

from cudaguard.files import ours

_TIME = 20.0  # seconds; compilers behind wrappers and network file systems start slowly


def _said(*command: str) -> str:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=_TIME, check=False, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except ours(OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


def cuda_version(nvcc: str) -> str:
    """Return the CUDA version of an nvcc, as in ``13.0``; empty if unknown."""
    match = re.search(r"release (\d+\.\d+)", _said(nvcc, "--version"))
    return match[1] if match else ""


def gcc_version(compiler: str) -> str:
    """Return the version of a compiler that is GCC, as in ``12.2.0``; empty for any other."""
    if "Free Software Foundation" not in _said(compiler, "--version"):
        return ""
    return _said(compiler, "-dumpfullversion", "-dumpversion").strip()
