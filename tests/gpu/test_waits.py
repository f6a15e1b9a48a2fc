"""Waits are made in the right context: pools, foreign contexts, captures; loans; reset devices.

Work is pending by a function of the host, the C library's ``usleep``, which the driver calls in the
order of the stream: no kernel has to be loaded for it.
"""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.gpu

WAITS = """
import ctypes
import threading

import torch

cu = driver()
SLEEP = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p)
PENDING, DEFAULT = 600, ctypes.c_void_p(1)


class Array:
    def __init__(self, address, stream):
        self.__cuda_array_interface__ = {
            "shape": (4,), "typestr": "<f4", "data": (address, False), "version": 3,
            "stream": stream,
        }


def busy(stream):
    assert cu.cuLaunchHostFunc(stream, SLEEP, ctypes.c_void_p(900_000)) == 0


def pending(stream=DEFAULT):
    return cu.cuStreamQuery(stream) == PENDING


def pool_memory():
    address = ctypes.c_uint64()
    assert cu.cuMemAllocAsync(ctypes.byref(address), ctypes.c_size_t(64), DEFAULT) == 0
    return address.value


def memory():
    address = ctypes.c_uint64()
    assert cu.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64)) == 0
    return address.value


def new_stream():
    stream = ctypes.c_void_p()
    assert cu.cuStreamCreate(ctypes.byref(stream), 1) == 0
    return stream


def in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


torch.zeros(1, device="cuda").sum().item()
torch.cuda.synchronize()
"""


@pytest.fixture
def run(program):
    """Runs code behind `WAITS`."""
    return lambda code, **how: program.run(WAITS + code, **how)


@pytest.mark.parametrize("where", ["here", "thread"])
def test_default_stream_of_pool_memory_is_waited_for(run, where):
    """In a thread that has no context as well, which is left without one."""
    ran = run(f"""
array = Array(pool_memory(), 1)
busy(DEFAULT)
print(pending())
def work():
    before = current()
    cudaguard.normalize(array, consumer="warp")
    print(current() == before)
work() if {where!r} == "here" else in_thread(work)
print(pending())
""")
    assert ran.out == ["True", "True", "False"]


def test_pool_memory_of_another_device_is_waited_for_there(run):
    ran = run(
        """
with torch.cuda.device(1):
    torch.zeros(1, device="cuda").sum().item()
    array = Array(pool_memory(), 1)
    busy(DEFAULT)
    print(pending())
cudaguard.normalize(array, consumer="warp")
print(torch.cuda.current_device())
with torch.cuda.device(1):
    print(pending())
""",
        devices=2,
    )
    assert ran.out == ["True", "0", "False"]


def test_capture_of_another_thread_goes_on(run):
    ran = run("""
producer = new_stream()
array = Array(memory(), producer.value)
x = torch.zeros(4, device="cuda")
graph = torch.cuda.CUDAGraph()
x.add_(1)
torch.cuda.synchronize()
with torch.cuda.graph(graph):  # in global mode
    x.add_(1)
    in_thread(lambda: cudaguard.normalize(array, consumer="warp"))
graph.replay()
print(x.tolist())
""")
    assert ran.out == ["[2.0, 2.0, 2.0, 2.0]"]


def test_stream_of_a_green_context_is_waited_for(run):
    ran = run("""
try:
    green = torch.cuda.green_contexts.GreenContext.create(1, 0)
    green.set_context()
    producer = torch.cuda.Stream()
    green.pop_context()
except (AttributeError, RuntimeError) as error:
    print("none", error)
    raise SystemExit
handle = ctypes.c_void_p(producer.cuda_stream)
busy(handle)
cudaguard.normalize(Array(memory(), producer.cuda_stream), consumer="warp")
print(pending(handle))
""")
    if ran.out[0].startswith("none"):
        pytest.skip(f"no green context can be made here: {ran.out[0]}")
    assert ran.out == ["False"]


def test_device_that_was_reset_gets_its_context_anew(program):
    ran = program.run(
        """
from cudaguard.system.driver import Driver

first = cudaguard.create_context(0)
print(Driver().state().active, driver().cuDevicePrimaryCtxReset_v2(0), Driver().state().active)
again = cudaguard.create_context(0)
print(Driver().state().active, again is first)
import torch
print(torch.ones(4, device="cuda").sum().item())
"""
    )
    assert ran.out == ["(0,) 0 ()", "(0,) False", "4.0"]
