"""DALI, before and after its fix, and other readers of arrays: the real ones, without a GPU.

What they do with an array up to their first call of the driver is all that can be seen so. With
``device_id=0`` and no stream DALI makes none.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from .cuda_packages import SUPPORTED, Ran

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Without what else its releases ask for: hundreds of megabytes that are not imported here.
DALI = (
    "--no-deps",
    "numpy==2.4.6",
    "six==1.17.0",
    "packaging==25.0",
    "gast==0.5.4",
    "wrapt==2.5.2",
)
DALI += ("astunparse==1.6.3", "dm-tree==0.1.9", "absl-py==2.5.1", "attrs==26.1.0")
DALI += ("importlib-metadata", "zipp")
DALI_1_35 = (*DALI, "nvidia-dali-cuda120==1.35.0", "mpi4py==4.1.2", "mpich==5.0.2")
DALI_2_4 = (*DALI, "nvidia-dali-cuda120==2.4.0", "optree==0.20.0", "nvtx==0.2.17")
DALI_2_4 += ("typing-extensions==4.16.0",)
CUPY = ("cupy-cuda12x==14.2.0", "cuda-pathfinder==1.9.0", "numpy==2.4.6", "wrapt==2.5.2")
CUPY += ("packaging", "importlib-metadata")

OUTCOME = """
def outcome(call):
    try:
        return f"ok {call()}"
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        return f"{type(error).__name__} because of {type(error.__cause__).__name__}: {first}"
"""
# What every program begins with; guarded from its first line where its argument is "install".
SCENE = """
import sys

import cudaguard


class Array:
    def __init__(self, **changes):
        entries = {"shape": (4, 4), "typestr": "<f4", "data": (0x1000, False), "version": 3}
        entries.update(changes)
        self.entries, self.reads = {k: v for k, v in entries.items() if v is not ...}, 0

    @property
    def __cuda_array_interface__(self):
        self.reads += 1
        return self.entries


def found():
    told = [f for f in cudaguard.status().findings if f.id.startswith(("CG83", "CG807"))]
    return " ".join(f"{f.id}:{f.severity}" for f in told) or "nothing"


if "install" in sys.argv:
    cudaguard.install()
"""


@pytest.fixture
def run_with(child: Any, cached_environment: Callable[..., Path], root: Path) -> Callable[..., Ran]:
    """Runs a program behind `SCENE`: ``run_with(pins, code, *arguments, env=None)``."""

    def run(
        pins: tuple[str, ...], code: str, *arguments: object, env: dict[str, str] | None = None
    ) -> Ran:
        if not SUPPORTED:
            pytest.skip("the pinned wheels are those for x86-64 Linux")
        path = child.write("main.py", SCENE + OUTCOME + textwrap.dedent(code))
        done = child.command(
            cached_environment(*pins),
            path,
            *arguments,
            env={"PYTHONPATH": str(root), "HOME": str(child.folder), **(env or {})},
            timeout=120,
        )
        return Ran(done.stdout.splitlines(), done.stderr)

    return run
