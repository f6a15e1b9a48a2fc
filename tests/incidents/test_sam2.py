"""SAM2's image encoder leaves tensors in the cache of its position encoding, and CUDA graphs
overwrite them: the real code, before and after its repair; tiny, with random weights.

Source: https://github.com/facebookresearch/sam2/issues/460
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from ..kept import PIP, about, run_python
from ..processes import clean_environment
from .marks import ON_LINUX
from .pins import TORCH

pytestmark = [
    *ON_LINUX,
    pytest.mark.skipif(
        sys.version_info < (3, 10), reason="SAM2 needs Python 3.10, and so does torch 2.13"
    ),
]

SHARED = (
    "hydra-core==1.3.2", "omegaconf==2.3.0", "antlr4-python3-runtime==4.9.3", "iopath==0.1.10",
    "portalocker==4.4.2", "pillow==13.0.0", "tqdm==4.70.1", "pyyaml==6.0.3", "torchvision==0.28.0",
)  # fmt: skip
SAM2 = {"old": "sam2==0.4.1", "new": "sam2==1.1.0"}  # before and after the repair of upstream


@pytest.fixture(scope="module")
def sam2(cached_environment, kept):
    """Returns the interpreter, and the folders that a version of SAM2 and what it needs lie in.

    Installed with the setuptools and the torch that are there, as its setup.py imports torch.
    """
    python = cached_environment(*TORCH)
    env = clean_environment(SAM2_BUILD_CUDA="0")

    def install(*packages):
        command = (*PIP, "install", "--no-deps", "--no-build-isolation", "--target")
        recipe = (about(python), TORCH, packages)
        return kept.folder(
            "sam2", recipe, lambda folder: run_python(python, *command, folder, *packages, env=env)
        )

    def get(which):
        return python, [str(install(SAM2[which])), str(install(*SHARED))]

    return get


VIDEO = Path(__file__).resolve().parent.parent / "features" / "cuda_graphs" / "sam2_video.py"


@pytest.fixture
def video(sam2, child, root):
    """Runs the video predictor of a version of SAM2 on this CPU; returns what it has printed."""

    def video(which, how):
        python, folders = sam2(which)
        env = {"PYTHONPATH": os.pathsep.join([str(root), *folders])}
        done = child.command(python, VIDEO, "cpu", how, env=env, timeout=300)
        return json.loads(done.stdout.splitlines()[-1])

    return video


WITH_GRAPHS = {"uses graphs": True, "graphs": True}


@pytest.mark.parametrize("which", SAM2)
def test_video_without_protection_is_wrong_and_nobody_says_so(video, which):
    """Newer code as well, for images of another size than that which it fills its cache for."""
    wrong = {"masks": "wrong", "features": "wrong", "warned": [], "found": []}
    assert video(which, "bare") == {**WITH_GRAPHS, **wrong}


@pytest.mark.parametrize("which", SAM2)
def test_copies_of_the_results_do_not_reach_its_cache(video, which):
    """The features are held by the program, the position encodings by the encoder itself."""
    still_wrong = {"masks": "wrong", "features": "right", "warned": [], "found": []}
    assert video(which, "clone") == {**WITH_GRAPHS, **still_wrong}


@pytest.mark.parametrize("which", SAM2)
def test_video_by_rule_is_right(video, which):
    right = {"masks": "right", "features": "right", "warned": [], "found": []}
    assert video(which, "rule") == {"uses graphs": False, "graphs": False, **right}
