"""A torch that was built for CUDA, with the packages of NVIDIA it needs; no GPU is asked for.

Which build the package index gives depends on the interpreter, the platform and the index: those
found here are asked in turn, this one first.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ..kept import about

if TYPE_CHECKING:
    from ..kept import Kept

TORCH = "2.13.0"
PINS = (f"torch=={TORCH}", "numpy", "ninja==1.13.0", "setuptools")
PINS += ("nvidia-cuda-nvcc==13.0.88", "nvidia-cuda-crt==13.0.88", "nvidia-nvvm==13.0.88")
PINS += ("packaging", "importlib-metadata", "nvidia-ml-py")
INTERPRETERS = Path(__file__).parents[2] / ".ci" / "interpreters.py"


@pytest.fixture(scope="session")
def cuda_torch(kept: Kept) -> Path:
    """The interpreter of an environment with a CUDA build of torch."""
    pythons = candidates()

    def ask(folder: Path) -> None:
        found = next((n for n, python in enumerate(pythons) if is_cuda_build(python)), None)
        if found is None:  # and that is not kept
            pytest.skip(f"the index has no CUDA build of torch {TORCH} for an interpreter here")
        folder.mkdir(parents=True)
        (folder / "number").write_text(str(found), encoding="ascii")

    # pip needs up to a minute for an answer.
    answer = kept.folder("cuda-torch", (list(map(about, pythons)), PINS[0]), ask) / "number"
    return kept.environment(*PINS, python=pythons[int(answer.read_text(encoding="ascii"))])


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
