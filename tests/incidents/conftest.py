"""What several incidents share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ..kept_objects import make_compilers
from .cuda_packages import cuda_packages as cuda_packages
from .cuda_packages import run_cuda as run_cuda
from .cuda_torch import cuda_torch as cuda_torch

if TYPE_CHECKING:
    from collections.abc import Iterator

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


@pytest.fixture(scope="session")
def path_to_build(kept: Kept, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH with compilers that keep what they have made (see `tests/kept_objects.py`)."""
    compilers = make_compilers(tmp_path_factory.mktemp("compilers"), kept)
    return f"{compilers}{os.pathsep}{os.environ['PATH']}"
