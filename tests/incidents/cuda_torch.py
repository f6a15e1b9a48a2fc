"""A torch that was built for CUDA, with the packages of NVIDIA it needs; no GPU is asked for.

Which build the package index gives depends on the interpreter, the platform and the index: those
found here are asked in turn, this one first.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TORCH = "2.13.0"
PINS = (f"torch=={TORCH}", "numpy", "ninja==1.13.0", "setuptools")
PINS += ("nvidia-cuda-nvcc==13.0.88", "nvidia-cuda-crt==13.0.88", "nvidia-nvvm==13.0.88")
PINS += ("packaging", "importlib-metadata", "nvidia-ml-py")
INTERPRETERS = Path(__file__).parents[2] / ".ci" / "interpreters.py"


@pytest.fixture(scope="session")
def cuda_torch(cached_environment) -> Path:
    """The interpreter of an environment with a CUDA build of torch."""
    for python in candidates():
        if is_cuda_build(python):
            return cached_environment(*PINS, python=python)
    pytest.skip(f"the package index has no CUDA build of torch {TORCH} for an interpreter here")


def candidates() -> list[str]:
    """Return the interpreters to try, this one first and then the newest."""
    found = subprocess.run(
        [sys.executable, INTERPRETERS], capture_output=True, text=True, check=True, timeout=300
    ).stdout.split()
    return [sys.executable, *reversed(found)]


def is_cuda_build(python: str) -> bool:
    """Would that interpreter get a torch that needs NVIDIA's packages? Nothing is installed."""
    done = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed",
         "--report", "-", PINS[0]],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    return done.returncode == 0 and '"nvidia-' in done.stdout
