"""Faults of order that were found by importing packages in any order.

usearch puts numkong, its library for distances, into the global symbol scope: simsimd, from which
numkong comes, calls three functions of it that have other arguments there. And usearch exports its
own C++ runtime: onnxruntime, when it comes later, crashes in ``std::regex``. xllamacpp
crashes itself where another C++ came first (https://github.com/xorbitsai/xllamacpp/pull/119).
"""

from __future__ import annotations

import signal

import pytest

from .marks import ON_LINUX

PINS = ("usearch==2.26.6", "numkong==7.8.6", "simsimd==6.5.16", "onnxruntime==1.32.0", "numpy")
LLAMA = ("xllamacpp==0.2.13", "scipy", "numpy")
GEOS = ("shapely==1.8.5.post1", "duckdb==0.6.1", "numpy<2")
CRASHES = {
    LLAMA: ("import scipy.special\n", "import xllamacpp\nxllamacpp.get_system_info()\n"),
    GEOS: ("import shapely.geometry\n", "import duckdb\nduckdb.query('select 42').fetchall()\n"),
}
NETCDF = ("h5py==3.11.0", "netCDF4==1.7.1.post1", "numpy<2")
HDF5 = """
folder = tempfile.mkdtemp()
with netCDF4.Dataset(f"{folder}/a.nc", "w") as file:
    file.createDimension("x", 5)
    file.createVariable("v", "f8", ("x",), zlib=True)[:] = numpy.arange(5.0)
with h5py.File(f"{folder}/a.h5", "w") as file:
    file["x"] = file["y"] = numpy.arange(9)
    file["y"].make_scale("s")
    file["x"].dims[0].attach_scale(file["y"])
    scales = len(file["x"].dims[0])
print(float(netCDF4.Dataset(f"{folder}/a.nc")["v"][:].sum()), scales)
"""
HIGHS = ("highspy==1.15.1", "ortools==9.14.6206")
SOLVERS = (
    "import highspy\nprint(highspy.Highs().run())\n",
    "from ortools.linear_solver.pywraplp import Solver\nSolver.CreateSolver('SCIP').Solve()\n",
)

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
def run(run_in_mode):
    """Runs a program there, in a mode of the guard."""
    return lambda mode, *code, pins=PINS: run_in_mode(mode, pins, *code)


def test_library_that_calls_functions_of_its_successor(run):
    red = run("off", "import usearch\n", DISTANCE).stderr.strip()
    assert red.splitlines()[-1].startswith("TypeError: Input tensors must have")
    for mode in ("fix", "strict"):
        green = run(mode, "import usearch\n", DISTANCE, SAID)
        assert (green.stdout, green.stderr) == ("13.0\n\n", "")
    told = run("warn", "import usearch\n", DISTANCE)
    assert "simsimd uses parse_tensor and 2 more symbols of _numkong" in told.stderr


def test_runtime_that_is_shown_to_everybody(run):
    assert run("off", SEARCH, INFERENCE).returncode == -signal.SIGSEGV
    for code in ((SEARCH, INFERENCE), (INFERENCE, SEARCH)):
        green = run("fix", *code, SAID)
        assert (sorted(green.stdout.split()), green.stderr) == (["42", "CPU"], "")
    assert run("warn", SEARCH, SAID).stdout.splitlines()[-1] == "CG813"


@pytest.mark.parametrize("pins", CRASHES)
def test_first_library_with_a_part_of_the_runtime(run, pins):
    """https://github.com/shapely/shapely/issues/1616: whoever comes later gets a mixture."""
    assert run("off", *CRASHES[pins], pins=pins).returncode == -signal.SIGSEGV
    for order in (CRASHES[pins], CRASHES[pins][::-1]):
        green = run("fix", *order, SAID, pins=pins)
        assert (green.returncode, green.stderr) == (0, "")


@pytest.mark.parametrize("order", [("h5py", "netCDF4"), ("netCDF4", "h5py")])
def test_library_that_two_wheels_have_under_one_name(run, order):
    """https://github.com/Unidata/netcdf4-python/issues/1343: libhdf5_hl, for two libhdf5."""
    code = "import {}, {}, tempfile, numpy\n{}".format(*order, HDF5)
    assert run("off", code, pins=NETCDF).stderr.splitlines()[-1].startswith("RuntimeError: ")
    green = run("fix", code, pins=NETCDF)
    assert (green.stdout, green.stderr) == ("10.0 1\n", "")


@pytest.mark.parametrize("order", [SOLVERS, SOLVERS[::-1]])
def test_library_that_is_another_one_in_each_wheel(run, order):
    """libhighs.so.1, of which each solver needs what the other one's lacks."""
    assert "undefined symbol: _Z" in run("off", *order, pins=HIGHS).stderr
    green = run("fix", *order, pins=HIGHS)
    assert ("HighsStatus.kOk\n" in green.stdout, green.returncode, green.stderr) == (True, 0, "")


TESSERACT = ("tesseract-robotics-nanobind==0.35.0.4", "numpy==2.4.6")
TESSERACT_USE = """
import numpy
from tesseract_robotics.tesseract_common import GeneralResourceLocator
GeneralResourceLocator()
print(len({line.split()[-1] for line in open("/proc/self/maps") if "libstdc++" in line}))
"""


def test_there_is_one_libstdcxx(run):
    """Of a package's own and the system's: an older one refuses it, two share their locales."""
    assert run("off", TESSERACT_USE, pins=TESSERACT).stdout != "1\n"
    green = run("fix", TESSERACT_USE, pins=TESSERACT)
    assert (green.stdout, green.stderr) == ("1\n", "")
