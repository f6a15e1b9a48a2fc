"""The guard comes after the culprit: what is loaded from then on is right all the same.

decord and a torch extension (see `test_torch_extension`), tensorflow and triton (see
`test_tensorflow_triton`), with `cudaguard.install()` between and behind the imports.
"""

from __future__ import annotations

import os
import shutil
import signal

import pytest

from .marks import ON_LINUX
from .pins import TENSORFLOW, TORCH
from .test_torch_extension import SUM

pytestmark = ON_LINUX
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")

# The words of argv are imported in turn; `guard` puts the guard up.
ORDER = """
import sys
def install():
    import cudaguard
    cudaguard.install("fix")
for name in sys.argv[1].split(","):
    install() if name == "guard" else __import__(name)
"""
# What decord is asked for goes through names that must not be hidden.
DECORD = """
import decord
print("registry", len(decord._ffi.function.list_global_func_names()))
try:
    decord.VideoReader("missing.mp4")
except Exception as error:
    print("error", type(error).__name__, "missing.mp4" in str(error))
"""
SAID = """
import cudaguard
for found in cudaguard.status().findings:
    print("finding", found.id, found.what)
for entry in cudaguard.status().changes:
    if entry.endswith("(stays)"):
        print("touched", entry)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """One build serves all orders: the same binary is right or wrong by order alone."""
    return tmp_path_factory.mktemp("extensions")


@pytest.fixture
def run(child, cached_environment, root, built, path_to_build):
    """Runs pieces of code with an order of imports; returns lines of output, and stderr."""

    def run(order, *code):
        python = cached_environment(*TORCH)
        path = child.write("program.py", "".join(code))
        env = {
            "PATH": f"{python.parent}{os.pathsep}{path_to_build}",
            "PYTHONPATH": str(root),
            "TORCH_EXTENSIONS_DIR": str(built),
        }
        done = child.command(python, path, order, env=env, timeout=600)
        return done.stdout.splitlines(), done.stderr

    return run


ORDERS = ["torch,decord,guard", "decord,torch,guard", "decord,guard,torch"]


@needs_compiler
@pytest.mark.parametrize("order", ORDERS)
def test_guard_that_comes_after_decord_makes_the_sum_right(run, order):
    (red,), _ = run(order.replace("guard", "json"), ORDER, SUM)
    assert int(red.split()[1]) != 6
    (green, *said), err = run(order, ORDER, SUM, SAID)
    assert green == "sum 6"
    kept = [line for line in said if line.startswith("touched distinct_sum: bound to its own")]
    assert len(kept) == 1
    # Those who were bound in between cannot be helped, and are named.
    findings = [line for line in said if line.startswith("finding CG812")]
    counted = any("libtorch" in line for line in findings), bool(findings), err.count("Warning: [")
    assert counted == (order == "decord,torch,guard",) * 3


@pytest.mark.parametrize("order", [*ORDERS, "decord,guard", "guard,decord"])
def test_decord_is_whole_afterwards(run, order):
    unguarded, _ = run(order.replace("guard", "json"), ORDER, DECORD)
    registry, error = unguarded
    assert int(registry.split()[1]) > 0
    assert error == "error RuntimeError True"
    assert run(order, ORDER, DECORD)[0] == unguarded


# --- tensorflow and triton -----------------------------------------------------------------------

QUIET = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
TRITON = """
import triton
import triton._C.libtriton
ones = tf.ones((8, 8))
print("product", float(tf.reduce_sum(tf.matmul(ones, ones))))
print("compiled", float(tf.function(lambda x: x * 2 + 1, jit_compile=True)(tf.constant(3.0))))
"""


@pytest.fixture
def tensorflow(child, cached_environment, root):
    """Runs code in which tensorflow has been imported; returns status, lines and stderr."""

    def tensorflow(*code):
        python = cached_environment(*TENSORFLOW)
        program = "\n".join(["import tensorflow as tf", *code])
        env = {**QUIET, "PYTHONPATH": str(root)}
        done = child.command(python, "-c", program, env=env, timeout=300, check=False)
        return done.returncode, done.stdout.splitlines(), done.stderr

    return tensorflow


def test_triton_aborts_after_tensorflow(tensorflow):
    status, lines, err = tensorflow(TRITON)
    assert (status, lines) == (-signal.SIGABRT, [])
    assert "registered more than once" in err


def test_guard_between_them_keeps_triton_apart(tensorflow):
    status, lines, err = tensorflow("import cudaguard; cudaguard.install()", TRITON, SAID)
    assert (status, lines[:2]) == (0, ["product 512.0", "compiled 7.0"]), err
    assert [line for line in lines if "CG812" in line and "triton._C.libtriton: bound to" in line]
    # Those who were bound in between are named; one of them is warned of.
    assert err.count("Warning: [") == err.count("Warning: [CG812]") == 1
