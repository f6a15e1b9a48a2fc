"""Real arrays of PyCUDA and numba, handed to DALI, cuda.core and numba on the stub driver.

Device memory is memory of the host there. What is asserted of the order of work is what the log
of the driver shows: never fewer waits with the guard than without.
"""

from __future__ import annotations

import pytest

from .array_packages import DALI_1_35, DALI_2_4, OUTCOME
from .cuda_packages import site_packages

pytestmark = pytest.mark.incidents

WAITS = ("cuStreamSynchronize", "cuStreamWaitEvent", "cuEventRecord", "cuCtxSynchronize")
START = """
import sys

# Wheels of DALI fit every Python: they are taken from an environment of their own.
if "dali" in sys.argv[1]:
    sys.path.append(sys.argv[1].partition("dali:")[2])
import cudaguard
import numpy as np

def found():
    told = [f for f in cudaguard.status().findings if f.severity != "info" or "CG83" in f.id]
    return " ".join(f"{f.id}:{f.severity}" for f in told) or "nothing"

if "install" in sys.argv:
    cudaguard.install(enable=[word for word in sys.argv if word.startswith("CG")])
"""
PYCUDA = """
import pycuda.autoprimaryctx
import pycuda.driver as drv
import pycuda.gpuarray as ga

array = ga.to_gpu(np.arange(16, dtype=np.float32).reshape(4, 4))
"""
DALI = """
from nvidia.dali.backend import TensorGPU, TensorListGPU

def tensor(array):
    made = TensorGPU(array, device_id=0)
    return f"{made.shape()} {made.dtype.name} {made.__cuda_array_interface__['data'][0]}"

def tensor_list(array):
    return f"{TensorListGPU(array, device_id=0).shape()}"
"""
NUMBA = """
from numba import cuda

stream = cuda.default_stream()
array = cuda.to_device(np.arange(16, dtype=np.float32).reshape(4, 4), stream=stream)
"""


@pytest.fixture
def run(run_cuda, cached_environment):
    """``run(code, *arguments, dali=pins, **how)``: runs code behind `START`, see `run_cuda`."""

    def run(code, *arguments, dali=None, **how):
        place = f"dali:{site_packages(cached_environment(*dali))}" if dali else "none"
        return run_cuda(START + OUTCOME + code, place, *arguments, **how)

    return run


def waits(ran):
    """Calls that wait, or have something wait, in their order."""
    return ran.called(*WAITS)


# --- PyCUDA ---------------------------------------------------------------------------------------


PYCUDA_TO_DALI = (
    PYCUDA
    + DALI
    + """
print(outcome(lambda: tensor(array)), array.ptr)
print(outcome(lambda: tensor_list(array)))
print(outcome(lambda: tensor(array[1:3])), array[1:3].ptr)
print(outcome(lambda: tensor(ga.empty((0, 3), np.float32))))
stream = drv.Stream()
pending = ga.to_gpu_async(np.ones((2, 2), np.float32), stream=stream)
print(outcome(lambda: tensor(cudaguard.normalize(pending, consumer="dali", stream=stream))))
"""
)


def test_dali_1_35_refuses_what_pycuda_exports(run):
    bare = run(PYCUDA_TO_DALI, "off", dali=DALI_1_35)
    for line in bare.out[:4]:
        assert line.startswith("RuntimeError because of TypeError: CUDA runtime API error")
    ran = run(PYCUDA_TO_DALI, "install", dali=DALI_1_35)
    first, several, part, empty, other = ran.out
    for line, shape in ((first, "[4, 4]"), (part, "[2, 4]")):
        text, _, pointer = line.rpartition(" ")
        assert text == f"ok {shape} FLOAT {pointer}"  # the same memory
    assert several == "ok [(4,), (4,), (4,), (4,)]"
    assert empty == "ok [0, 3] FLOAT 0"
    assert other.startswith("ok [2, 2] FLOAT")
    assert ran.warnings == []
    assert waits(ran) == waits(bare)


def test_dali_2_4_takes_it_as_before(run):
    bare, ran = (run(PYCUDA_TO_DALI + "print(found())", word, dali=DALI_2_4)
                 for word in ("off", "install"))  # fmt: skip
    assert [line.split()[0] for line in bare.out[:5]] == ["ok"] * 5
    shapes = [[line.rpartition("]")[0] for line in one.out] for one in (bare, ran)]
    assert shapes[0] == shapes[1]
    assert "warn" not in ran.out[-1]
    assert ran.warnings == []
    assert waits(ran) == waits(bare)


@pytest.mark.parametrize("pins", [DALI_1_35, DALI_2_4], ids=["1.35.0", "2.4.0"])
def test_slices_with_gaps_are_told_of_and_refused_by_dali(run, pins):
    code = (
        PYCUDA
        + DALI
        + """
for part in (array[:, 1:3], array[::2], array[::-1]):
    print(outcome(lambda: tensor(part)))
print(found())
"""
    )
    *lines, last = run(code, "install", dali=pins).out
    assert len(lines) == 3
    for line in lines:
        assert line.startswith("RuntimeError because of NoneType")
        assert "stride_from_shape" in line
    assert last == "CG835:warning"


# --- numba ----------------------------------------------------------------------------------------


CUDA_CORE = (
    NUMBA
    + """
from cuda.core import Device
from cuda.core.utils import StridedMemoryView

device = Device(0)
device.set_current()
ours = device.create_stream()
print(array.__cuda_array_interface__["stream"])

def view():
    return StridedMemoryView.from_any_interface(array, stream_ptr=int(ours.handle)).shape

print("--", hex(int(ours.handle)))
print(outcome(view))
print(found())
"""
)


def test_cuda_core_refuses_numbas_default_stream(run):
    bare, ran = run(CUDA_CORE, "off"), run(CUDA_CORE, "install")
    assert [bare.out[0], *bare.out[2:]] == ["0", "AssertionError because of NoneType: ", "nothing"]
    assert [ran.out[0], *ran.out[2:]] == ["1", "ok (4, 4)", "CG834:info"]
    ours = ran.out[1].split()[1]
    *earlier, recorded, waited = waits(ran)
    assert [name for name, _ in earlier] == [name for name, _ in waits(bare)]
    # cuda.core has its stream wait for the legacy default stream.
    assert (recorded[0], waited[0]) == ("cuEventRecord", "cuStreamWaitEvent")
    assert "stream=0x1" in recorded[1]
    assert f"stream={ours}" in waited[1]
    assert ran.err == bare.err == ""


def test_what_numba_means_under_a_stream_per_thread_is_not_guessed(run):
    variable = {"NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM": "1"}
    bare, ran = (run(CUDA_CORE, word, env=variable) for word in ("off", "install"))
    assert ran.out[0] == bare.out[0] == "0"
    assert ran.out[2] == bare.out[2] == "AssertionError because of NoneType: "
    assert ran.out[3] == "nothing"


def test_dali_refuses_numbas_default_stream(run):
    code = (
        NUMBA
        + DALI
        + """
print(outcome(lambda: tensor(array)))
print(outcome(lambda: tensor_list(array)))
print(found())
"""
    )
    bare, ran = run(code, "off", dali=DALI_2_4), run(code, "install", dali=DALI_2_4)
    for line in bare.out[:2]:
        assert "stream_value != 0" in line
    for line in ran.out[:2]:  # the CUDA runtime is reached, which does not start on the stub
        assert line.startswith("RuntimeError because of NoneType: CUDA runtime API error")
    assert (bare.out[2], ran.out[2]) == ("nothing", "CG834:info")
    assert waits(ran) == waits(bare)


NUMBA_ITSELF = (
    NUMBA
    + """
named = cuda.stream()
one, other = cuda.to_device(np.ones(3)), cuda.to_device(np.ones(3), stream=named)
for one in (array, one, other, array[::2], array[1]):
    exported = one.__cuda_array_interface__
    print(exported["shape"], exported["strides"], exported["typestr"], exported["version"])
    taken = cuda.as_cuda_array(one)
    print(taken.copy_to_host().tolist() if taken.is_c_contiguous() else "")
print(found())
"""
)


def test_numba_itself_goes_on_as_before(run):
    bare, ran = run(NUMBA_ITSELF, "off"), run(NUMBA_ITSELF, "install")
    assert ran.out[:-1] == bare.out[:-1]
    assert (bare.out[-1], ran.out[-1]) == ("nothing", "CG834:info")
    assert ran.err == bare.err == ""
    # Handles differ from run to run; stream 0 and the legacy default stream are one and the same.
    calls = [
        [
            (name, args if args in ("stream=0", "stream=0x1") else "another")
            for name, args in waits(one)
        ]
        for one in (bare, ran)
    ]
    assert ("cuStreamSynchronize", "stream=0") in calls[0]
    assert len(calls[0]) == len(calls[1])
    for before, after in zip(*calls):
        assert after == before or (before[1], after[1]) == ("stream=0", "stream=0x1")


def test_numbas_variable_that_switches_waiting_off_is_left_to_it(run):
    variable = {"NUMBA_CUDA_ARRAY_INTERFACE_SYNC": "0"}
    bare, ran = (run(NUMBA_ITSELF, word, env=variable) for word in ("off", "install"))
    assert ran.out[:-1] == bare.out[:-1]
    assert [name for name, _ in waits(ran)] == [name for name, _ in waits(bare)]
