"""SAM2's video predictor with its image encoder compiled for CUDA graphs, on a real GPU.

The program is the one that ``tests/incidents/test_sam2.py`` runs on a CPU, where a stand-in takes
the place of the graphs. What is right is what the same predictor computes uncompiled.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu

PROGRAM = Path(__file__).resolve().parent.parent / "features" / "cuda_graphs" / "sam2_video.py"
NEEDED = ("sam2", "torchvision", "hydra", "numpy", "PIL")
# Of the ways to compute a thing none is to be tried out: that would take minutes, and graphs are
# what this is about.
QUICK = {
    "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS": "ATEN",
    "TORCHINDUCTOR_MAX_AUTOTUNE_CONV_BACKENDS": "ATEN",
}
TIME_LIMIT = 580  # seconds


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where inductor keeps what it has compiled, from one program to the next."""
    return str(tmp_path_factory.mktemp("inductor"))


@pytest.fixture
def video(child: Any, root: Path, gpus: object, torch: object, cache: str) -> Any:
    """Runs the program in one of its ways; returns what it has printed."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")

    def video(how: str) -> dict[str, Any]:
        env = {"PYTHONPATH": str(root), "TORCHINDUCTOR_CACHE_DIR": cache, **QUICK}
        done = child.command(sys.executable, PROGRAM, "cuda", how, env=env, timeout=TIME_LIMIT)
        printed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return printed

    return video


def test_without_protection_it_is_refused_or_wrong(video):
    """The fault itself: were it gone, the tests below would show nothing."""
    ran = video("bare")
    assert ran["uses graphs"] is True
    assert ran["masks"] in ("refused", "wrong")
    assert ran["features"] in ("refused", "wrong")


def test_copies_of_the_results_do_not_reach_its_cache(video):
    ran = video("clone")
    assert ran["masks"] in ("refused", "wrong")
    assert ran["features"] != "wrong"  # it is refused where the encoder reads that cache itself


def test_rule_compiles_it_without_graphs(video):
    ran = video("rule")
    assert (ran["masks"], ran["features"]) == ("right", "right")
    assert ran["uses graphs"] is False
    assert ran["warned"] == ran["found"] == []
