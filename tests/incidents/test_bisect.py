"""``cudaguard bisect`` on real scripts that fail, without being told which packages fail."""

from __future__ import annotations

import platform
import signal

import pytest

from ..documents import valid

pytestmark = [
    pytest.mark.incidents,
    pytest.mark.skipif(
        (platform.system(), platform.machine()) != ("Linux", "x86_64"),
        reason="the wheels exist for x86-64 Linux only",
    ),
]

OURS = ("packaging", "importlib-metadata")
TENSORFLOW = ("tensorflow-cpu==2.20.0", "triton==3.9.0", *OURS)
DECORD = ("decord==0.6.0", "opencv-python-headless==4.10.0.84", "numpy", "pillow==13.0.0", *OURS)
QUIET = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}

TRAIN = """
    import argparse
    import numpy as np
    import tensorflow as tf

    def kernel():
        from triton._C import libtriton
        return libtriton

    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int)
    ones = tf.ones((parser.parse_args().size, 2))
    print(float(tf.reduce_sum(ones)), np.float32(1), kernel().__name__)
"""
FRAMES = """
    import io
    import os

    import numpy as np
    import PIL.Image
    from decord import VideoReader, cpu

    import reader

    image = (np.arange(48 * 48 * 3) % 251).astype(np.uint8).reshape(48, 48, 3)
    assert reader.roundtrip(image) is not None, "the frame cannot be read back"
"""
READER = """
    import cv2

    def roundtrip(image):
        return cv2.imdecode(cv2.imencode(".png", image)[1], cv2.IMREAD_COLOR)
"""


@pytest.fixture
def bisect(child, cached_environment, root):
    """Runs a script plainly, bisects it; returns the plain run, the document, the runner."""

    def bisect(pins, *program):
        python = cached_environment(*pins)
        env = {**QUIET, "PYTHONPATH": str(root)}

        def run(*command, **variables):
            return child.command(
                python, *command, env={**env, **variables}, timeout=600, check=False
            )

        plain = run(*program)
        files = ("-o", "rule.toml", "-o", "small.py")
        done = run("-m", "cudaguard", "bisect", "--format", "json", *files, *program)
        assert done.returncode == 1, done.stderr
        return plain, valid("bisect", done.stdout), run

    return bisect


def test_tensorflow_and_triton(bisect, child):
    child.write("train.py", TRAIN)
    plain, found, run = bisect(TENSORFLOW, "train.py", "--size", "4")
    assert plain.returncode == -signal.SIGABRT
    assert found["failing"] == ["tensorflow", "triton"]
    assert found["working"] == ["triton", "tensorflow"]
    assert found["failure"]["signal"] == "SIGABRT"
    assert found["program_works"] is True
    assert found["guard"] == {"cures": True, "rules": ["CG002"]}
    assert any("registered more than once" in line for line in found["evidence"])
    # What was written is true: the small program aborts, and the rule alone cures the script.
    assert run("small.py").returncode == -signal.SIGABRT
    rule = {"CUDAGUARD_CONFIG": "rule.toml", "CUDAGUARD_RULES": "-CG002"}
    start = ("-m", "cudaguard", "run", "train.py", "--size", "4")
    assert run(*start, CUDAGUARD_RULES="-CG002").returncode != 0
    assert run(*start, **rule).stdout == "8.0 1.0 triton._C.libtriton\n"


def test_decord_and_opencv(bisect, child):
    """OpenCV is imported by another file of the user's, and fails long after its import."""
    child.write("frames.py", FRAMES)
    child.write("reader.py", READER)
    plain, found, run = bisect(DECORD, "frames.py")
    assert plain.returncode == 1
    assert "the frame cannot be read back" in plain.stderr
    assert (found["failing"], found["working"]) == (["decord", "cv2"], ["cv2", "decord"])
    assert found["with_program"] is True
    assert found["guard"] == {"cures": True, "rules": ["CG001"]}
    assert found["versions"]["opencv-python-headless"] == "4.10.0.84"
    assert run("small.py").returncode == 1
    rule = {"CUDAGUARD_CONFIG": "rule.toml", "CUDAGUARD_RULES": "-CG001"}
    start = ("-m", "cudaguard", "run", "frames.py")
    assert run(*start, CUDAGUARD_RULES="-CG001").returncode == 1
    assert run(*start, **rule).returncode == 0
