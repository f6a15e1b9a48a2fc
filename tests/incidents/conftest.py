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
    from ..kept import Kept


@pytest.fixture(scope="session")
def path_to_build(kept: Kept, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH with compilers that keep what they have made (see `tests/kept_objects.py`)."""
    compilers = make_compilers(tmp_path_factory.mktemp("compilers"), kept)
    return f"{compilers}{os.pathsep}{os.environ['PATH']}"
