"""tensorflow's LLVM serves triton, which aborts; torch first does not help, local scope does."""

from __future__ import annotations

import signal

import pytest

from .marks import ON_LINUX
from .pins import TENSORFLOW

pytestmark = ON_LINUX

QUIET = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
PROGRAM = """
import sys
import tensorflow as tf
import triton
import triton._C.libtriton
ones = tf.ones((8, 8))
print("product", float(tf.reduce_sum(tf.matmul(ones, ones))))
print("compiled", float(tf.function(lambda x: x * 2 + 1, jit_compile=True)(tf.constant(3.0))))
print("flags", sys.getdlopenflags())
"""
RIGHT = ["product 512.0", "compiled 7.0", "flags 2"]


@pytest.fixture
def run(child, cached_environment, root):
    """Runs a command line in the environment; returns status, lines of output and stderr."""

    def run(*command, **variables):
        python = cached_environment(*TENSORFLOW)
        env = {**QUIET, "PYTHONPATH": str(root), **variables}
        done = child.command(python, *command, env=env, timeout=300, check=False)
        return done.returncode, done.stdout.splitlines(), done.stderr

    return run


def test_it_aborts_without_the_guard(run):
    status, lines, errors = run("-c", PROGRAM)
    assert status == -signal.SIGABRT
    assert lines == []
    assert "registered more than once" in errors


@pytest.mark.parametrize("door", ["install", "block", "run"])
def test_it_works_through_every_door(run, child, door):
    block = (
        "import cudaguard\nwith cudaguard.guard('strict'):\n"
        "    import tensorflow, triton._C.libtriton\n"
    )
    program = {
        "install": ["-c", f"import cudaguard; cudaguard.install('strict'){PROGRAM}"],
        "block": ["-c", f"{block}{PROGRAM}"],
        "run": ["-m", "cudaguard", "run", "--quiet", "--mode", "strict", "-c", PROGRAM],
    }[door]
    status, lines, errors = run(*program)
    assert (status, lines) == (0, RIGHT)
    assert "cudaguard" not in errors.lower()


def test_a_warning_names_the_package_and_the_line(run):
    _, _, errors = run("-m", "cudaguard", "run", "--mode", "warn", "-c", PROGRAM)
    module = "tensorflow.python.pywrap_dlopen_global_flags"
    assert f"[CG002] {module} exposes its extensions to every library" in errors
    assert "pywrap" in errors


def test_guard_between_them_keeps_triton_apart(run):
    install = "import cudaguard; cudaguard.install()\n"
    changes = "print(*cudaguard.status().changes, sep='\\n')\n"
    late = PROGRAM.replace("import triton\n", f"{install}import triton\n") + changes
    status, lines, errors = run("-c", late)
    assert (status, lines[:3]) == (0, RIGHT), errors
    assert [line for line in lines if "CG812" in line and "triton._C.libtriton: bound to" in line]
    # Those who were bound in between are named; one of them is warned of.
    assert errors.count("Warning: [") == errors.count("Warning: [CG812]") == 1
