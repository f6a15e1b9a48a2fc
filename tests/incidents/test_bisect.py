"""``cudaguard bisect`` on real scripts that fail, without being told which packages fail."""

from __future__ import annotations

import os
import shutil
import signal

import pytest

from ..documents import valid
from .marks import ON_LINUX
from .pins import OURS, TENSORFLOW, TORCH
from .test_torch_extension import PROGRAM

pytestmark = ON_LINUX

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
        options = ("--format", "json", "--with-arguments", "-o", "rule.toml")
        done = run("-m", "cudaguard", "bisect", *options, *program)
        assert done.returncode == 1, done.stderr
        return plain, valid("bisect", done.stdout), run

    return bisect


def test_tensorflow_and_triton(bisect, child):
    child.write("train.py", TRAIN)
    plain, found, run = bisect(TENSORFLOW, "train.py", "--size", "4")
    assert plain.returncode == -signal.SIGABRT
    assert found["failing"] == ["tensorflow", "triton"]
    assert found["working"] == ["triton", "tensorflow"]
    assert found["failure"]["text"] == "SIGABRT"
    assert found["program_works"] is True
    assert found["guard"] == {"cures": True, "rules": ["CG002"]}
    assert any("registered more than once" in line for line in found["evidence"])
    # What was written is true: the rule alone cures the script.
    rule = {"CUDAGUARD_CONFIG": "rule.toml", "CUDAGUARD_RULES": "-CG002,-CG812"}
    start = ("-m", "cudaguard", "run", "train.py", "--size", "4")
    assert run(*start, CUDAGUARD_RULES="-CG002,-CG812").returncode != 0
    assert run(*start, **rule).stdout == "8.0 1.0 triton._C.libtriton\n"


def test_decord_and_opencv(bisect, child):
    """OpenCV is imported by another file of the user's, and fails long after its import."""
    child.write("frames.py", FRAMES)
    child.write("reader.py", READER)
    plain, found, run = bisect(DECORD, "frames.py")
    assert plain.returncode == 1
    assert "the frame cannot be read back" in plain.stderr
    assert (found["failing"], found["working"]) == (["decord", "cv2"], ["cv2", "decord"])
    assert found["guard"] == {"cures": True, "rules": ["CG001"]}
    assert found["versions"]["opencv-python-headless"] == "4.10.0.84"
    rule = {"CUDAGUARD_CONFIG": "rule.toml", "CUDAGUARD_RULES": "-CG001,-CG812"}
    start = ("-m", "cudaguard", "run", "frames.py")
    assert run(*start, CUDAGUARD_RULES="-CG001,-CG812").returncode == 1
    assert run(*start, **rule).returncode == 0


needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
EXTENSION = """
    #include <Python.h>
    namespace c10 { class Error; }
    static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "ours"};
    PyMODINIT_FUNC PyInit_ours(void) { return PyModule_Create(&definition); }
"""
BUILD = """
    import os, subprocess, sysconfig
    import torch
    libraries = os.path.join(os.path.dirname(torch.__file__), "lib")
    subprocess.run([
        "g++", "-shared", "-fPIC", "ours.cpp", "-o", "ours.so", "-I",
        sysconfig.get_path("include"), "-L", libraries, "-Wl,--no-as-needed", "-lc10",
    ], check=True)
"""


@needs_compiler
def test_extension_that_is_imported_before_torch(bisect, child, cached_environment):
    """The script dies at its first import, and names what it needs further down."""
    child.write("ours.cpp", EXTENSION)
    child.python(BUILD, python=cached_environment(*TORCH), timeout=600)
    child.write("train.py", "import numpy\nimport ours\nimport torch\nprint(torch.ones(2).sum())\n")
    plain, found, _ = bisect(TORCH, "train.py")
    assert "ImportError: libc10.so: cannot open shared object file" in plain.stderr
    assert (found["verdict"], found["first"], found["then"]) == ("needs", ["torch"], ["ours"])
    assert found["program_works"] is True
    assert found["guard"] == {"cures": True, "rules": ["CG003"]}


@needs_compiler
def test_sum_that_no_order_cures(bisect, child, cached_environment, path_to_build, monkeypatch):
    """decord's names serve torch's extensions in both orders: only the guard cures it."""
    python = cached_environment(*TORCH)
    checked = PROGRAM.replace('print("sum", module', "assert 6 == (module")
    child.write("train.py", checked)
    monkeypatch.setenv("PATH", f"{python.parent}{os.pathsep}{path_to_build}")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(child.folder))
    plain, found, _ = bisect(TORCH, "train.py", "decord,torch")
    assert "AssertionError" in plain.stderr
    assert found["verdict"] == "unexplained"
    assert found["guard"] == {"cures": True, "rules": ["CG001"]}
    assert found["rule"] is None
