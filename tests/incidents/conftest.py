"""What several incidents share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from ..kept_objects import make_compilers
from .cuda_packages import cuda_packages as cuda_packages
from .cuda_packages import run_cuda as run_cuda
from .cuda_torch import cuda_torch as cuda_torch
from .pins import OURS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ..kept import Kept

# The longest first: what begins last should not be what takes longest.
LONG = ("test_builds", "test_quiet", "test_sam2", "test_rules_test", "test_bisect")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest first."""
    items.sort(key=lambda item: LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG))


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Has what computes do so in one thread: several that wait for each other take more cores."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture
def run_in_mode(
    child: Any, root: Path, cached_environment: Callable[..., Path]
) -> Callable[..., Any]:
    """Runs code with packages, in a mode of the guard: ``run_in_mode(mode, pins, *code)``."""

    def run(mode: str, pins: tuple[str, ...], *code: str) -> Any:
        text = "".join((f"import cudaguard\ncudaguard.install({mode!r})\n", *code))
        env = {"PYTHONPATH": str(root), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
        python = cached_environment(*pins, *OURS)
        return child.command(python, "-c", text, env=env, check=False, timeout=300)

    return run


@pytest.fixture(scope="session")
def path_to_build(kept: Kept, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH with compilers that keep what they have made (see `tests/kept_objects.py`)."""
    compilers = make_compilers(tmp_path_factory.mktemp("compilers"), kept)
    return f"{compilers}{os.pathsep}{os.environ['PATH']}"
