"""Two faults of order that nobody has reported, found by importing packages in any order.

usearch puts numkong, its library for distances, into the global symbol scope: simsimd, from which
numkong comes, calls three functions of it that have other arguments there. And usearch exports its
own C++ runtime: onnxruntime, when it comes later, crashes in ``std::regex``.
"""

from __future__ import annotations

import signal

import pytest

from .marks import ON_LINUX
from .pins import OURS

PINS = ("usearch==2.26.6", "numkong==7.8.6", "simsimd==6.5.16", "onnxruntime==1.32.0", "numpy")

pytestmark = ON_LINUX

DISTANCE = """
import numpy, simsimd
print(round(float(simsimd.sqeuclidean(*numpy.array([[1, 2], [3, 5]], numpy.float32))), 3))
"""
SEARCH = """
import numpy
from usearch.index import Index
index = Index(ndim=2, metric="l2sq", dtype="f32")
index.add(42, numpy.array([1.5, 2.5], numpy.float32))
print(index.search(numpy.array([1, 2], numpy.float32), 1)[0].key)
"""
INFERENCE = "import onnxruntime\nprint(onnxruntime.get_device())\n"
SAID = "print(*sorted(found.id for found in cudaguard.status().findings))\n"


@pytest.fixture
def run(child, root, cached_environment):
    """Runs a program there, in a mode of the guard."""

    def run(mode, *code):
        install = f"import cudaguard\ncudaguard.install({mode!r})\n"
        python = cached_environment(*PINS, *OURS)
        env = {"PYTHONPATH": str(root)}
        return child.command(python, "-c", install + "".join(code), env=env, check=False)

    return run


def test_library_that_calls_functions_of_its_successor(run):
    red = run("off", "import usearch\n", DISTANCE)
    assert red.stderr.strip().splitlines()[-1].startswith("TypeError: Input tensors must have")
    for mode in ("fix", "strict"):
        green = run(mode, "import usearch\n", DISTANCE, SAID)
        assert (green.stdout, green.stderr) == ("13.0\n\n", "")
    told = run("warn", "import usearch\n", DISTANCE)
    assert "simsimd uses parse_tensor and 2 more symbols of _numkong" in told.stderr


def test_runtime_that_is_shown_to_everybody(run):
    red = run("off", SEARCH, INFERENCE)
    assert red.returncode == -signal.SIGSEGV
    for code in ((SEARCH, INFERENCE), (INFERENCE, SEARCH)):
        green = run("fix", *code, SAID)
        assert (sorted(green.stdout.split()), green.stderr) == (["42", "CPU"], "")
    told = run("warn", SEARCH, SAID)
    assert told.stdout.splitlines()[-1] == "CG813"
