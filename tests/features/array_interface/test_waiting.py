"""The host waits for streams that consumers ignore, in the context that they are of.

What the driver is asked to do stands in the log of the stub: nothing is assumed. The current
context stands on every line of it: which default stream a handle means is decided by that.
"""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from cudaguard.features.array_interface.consumers import CONSUMERS

from ...features.cuda_init.program import Program

IGNORING = [one.name for one in CONSUMERS if not one.heeds_stream]
HEEDING = [one.name for one in CONSUMERS if one.heeds_stream]

START = """
import ctypes
cu = ctypes.CDLL("libcuda.so.1")
cu.cuInit(0)
context, second = ctypes.c_void_p(), ctypes.c_void_p()
cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cu.cuDevicePrimaryCtxRetain(ctypes.byref(second), 1)
cu.cuCtxSetCurrent(context)


def new_stream():
    stream = ctypes.c_void_p()
    assert cu.cuStreamCreate(ctypes.byref(stream), 1) == 0
    return stream.value


def new_memory():
    address = ctypes.c_uint64()
    assert cu.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64)) == 0
    return address.value


def of_pool(device):
    # As with two GPUs and cudaMallocAsync; device 0 stays current.
    assert cu.cuCtxSetCurrent([context, second][device]) == 0
    address = ctypes.c_uint64()
    assert cu.cuMemAllocAsync(ctypes.byref(address), ctypes.c_size_t(64), None) == 0
    assert cu.cuCtxSetCurrent(context) == 0
    return address.value


def current():
    handle = ctypes.c_void_p()
    assert cu.cuCtxGetCurrent(ctypes.byref(handle)) == 0
    return handle.value


def in_thread(function):
    import threading

    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def capture(stream, mode=0):
    assert cu.cuStreamBeginCapture_v2(ctypes.c_void_p(stream), mode) == 0


def end_capture(stream):
    return cu.cuStreamEndCapture(ctypes.c_void_p(stream), ctypes.byref(ctypes.c_void_p()))


class Array:
    def __init__(self, address, stream=None):
        self.interface = {"shape": (4,), "typestr": "<f4", "data": (address, False), "version": 3}
        if stream is not None:
            self.interface["stream"] = stream

    @property
    def __cuda_array_interface__(self):
        return self.interface


array = Array(new_memory(), new_stream())
print("start", array.interface["stream"])
"""


class Arrays(Program):
    """Runs programs with arrays on the wide stub."""

    def waits(self, code: str, **how: Any) -> tuple[list[str], list[str]]:
        """Run code; return what it printed, and what was waited for as ``stream@context``.

        The stream of `array` is called P, others by their number.
        """
        ran = self.run(START + textwrap.dedent(code), **how)
        assert ran.err == ""
        (start,) = [line for line in ran.out if line.startswith("start ")]
        retained = ran.calls.count("cuDevicePrimaryCtxRetain")
        assert retained - ran.calls.count("cuDevicePrimaryCtxRelease_v2") == 2  # the program's
        assert ran.calls.count("cuCtxPushCurrent_v2") == ran.calls.count("cuCtxPopCurrent_v2")
        waits = []
        for call in self.stubs.calls(self.log):
            if call.name == "cuStreamSynchronize":
                handle = int(call.args.partition("stream=")[2].split()[0], 0)
                which = "P" if handle == int(start[6:]) else handle
                waits.append(f"{which}@{call.context}")
        return [line for line in ran.out if line != start], waits


@pytest.fixture
def arrays(child, driver_stubs):
    return Arrays(child, driver_stubs.wide())


def test_host_waits_for_consumers_that_ignore_streams(arrays):
    out, waits = arrays.waits(
        f"""
        for consumer in {IGNORING}:
            print(cudaguard.normalize(array, consumer=consumer) is array)
        """
    )
    assert out == ["True"] * len(IGNORING)
    assert waits == ["P@primary0"] * len(IGNORING)


def test_consumers_that_wait_themselves_are_left_to_it(arrays):
    out, waits = arrays.waits(
        f"""
        for consumer in {[None, *HEEDING]}:
            for shape in ((4,), [4]):
                array.interface["shape"] = shape
                print(cudaguard.normalize(array, consumer=consumer) is array)
        """
    )
    assert out == ["True", "False"] * (len(HEEDING) + 1)
    assert waits == []


def test_it_is_told_once_for_each_class_and_consumer(arrays):
    out, _ = arrays.waits(
        """
        import logging
        logging.basicConfig(level="INFO", stream=sys.stdout)
        for _ in range(3):
            cudaguard.normalize(array, consumer="warp")
        cudaguard.normalize(array, consumer="mpi4py")
        print(array.interface["stream"])
        print(*(f"{f.id} {f.severity} {f.what}" for f in found()), sep="\\n")
        """
    )
    stream = out.pop(2)
    rest = f"ignores the stream of __main__.Array: the host waited for stream {stream}."
    assert out == [
        f"INFO:cudaguard:CG831: warp {rest}",
        f"INFO:cudaguard:CG831: mpi4py {rest}",
        f"CG831 info warp {rest}",
        f"CG831 info mpi4py {rest}",
    ]


@pytest.mark.parametrize("call", ["cuStreamSynchronize", "cuStreamIsCapturing"])
def test_what_the_driver_refuses_is_an_error_with_the_remedy(arrays, call):
    ran = arrays.run(START + "attempt(cudaguard.normalize, array, consumer='warp')", rc={call: 900})
    assert ran.err == ""
    assert ran.out[-1].startswith("ArrayInterfaceError __cuda_array_interface__['stream']")
    assert f"{call} answers 900" in ran.out[-1]
    assert "stream=None" in ran.out[-1]
    assert ("cuStreamSynchronize" in ran.calls) is (call == "cuStreamSynchronize")
    assert ran.calls.count("cuCtxPushCurrent_v2") == ran.calls.count("cuCtxPopCurrent_v2") > 0
    assert ran.calls.count("cuThreadExchangeStreamCaptureMode") == 2


def test_driver_is_neither_loaded_nor_initialized_for_it(arrays):
    code = """
        class Array:
            __cuda_array_interface__ = {"shape": (4,), "typestr": "<f4", "data": (4096, False),
                                        "version": 3, "stream": 7}
        for consumer in ("torch", "warp"):
            assert cudaguard.normalize(Array, consumer=consumer) is Array
        assert not any("libcuda" in line for line in open("/proc/self/maps"))
        driver()
        assert cudaguard.normalize(Array, consumer="warp") is Array
        assert found() == []
    """
    ran = arrays.run(code)
    assert ran.err == ""
    assert "cuInit" not in ran.calls
    assert "cuStreamSynchronize" not in ran.calls


def test_nothing_is_asked_in_a_forked_child(arrays):
    ran = arrays.run(
        START + "cudaguard.normalize(array, consumer='warp')\n"
        "in_child(lambda: cudaguard.normalize(array, consumer='warp'))"
    )
    calls = arrays.stubs.calls(arrays.log)
    assert ran.err == ""
    assert len({call.pid for call in calls}) == 1
    assert ran.calls.count("cuStreamSynchronize") == 1


# --- contexts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [1, 2])
def test_memory_of_a_pool_is_waited_for_on_its_own_device(arrays, stream):
    out, waits = arrays.waits(
        f"""
        data = Array(of_pool(1), stream={stream})
        before = current()
        cudaguard.normalize(data, consumer="warp")
        print(current() == before)
        """
    )
    assert (out, waits) == (["True"], [f"{stream}@primary1"])


def test_default_streams_of_two_contexts_are_two_streams(arrays):
    """PyCUDA's own context, and the primary one that is current when the wait is asked for."""
    _, waits = arrays.waits(
        """
        own = ctypes.c_void_p()
        assert cu.cuCtxCreate_v2(ctypes.byref(own), 0, 0) == 0
        data = [Array(new_memory(), stream=stream) for stream in (1, new_stream())]
        cu.cuCtxSetCurrent(context)
        for one in (*data, Array(new_memory(), stream=1)):
            cudaguard.normalize(one, consumer="torch")
        """
    )
    assert [waits[0], waits[1].partition("@")[2], waits[2]] == ["1@own1", "own1", "1@primary0"]


def test_default_stream_of_nobody_is_refused(arrays):
    out, waits = arrays.waits(
        """
        data = Array(of_pool(1), stream=1)
        cu.cuDevicePrimaryCtxReset_v2(1)
        attempt(cudaguard.normalize, data, consumer="warp")
        """
    )
    assert waits == []
    assert "it is the default stream of a context, and none is current or active" in out[0]


def test_stream_of_a_green_context_is_waited_for_in_the_primary_one(arrays):
    """A green context can be current to one thread only, and may be."""
    out, waits = arrays.waits(
        """
        green, stream = ctypes.c_void_p(), ctypes.c_void_p()
        assert cu.cuGreenCtxCreate(ctypes.byref(green), None, 0, 1) == 0
        assert cu.cuGreenCtxStreamCreate(ctypes.byref(stream), green, 1, 0) == 0
        data = Array(new_memory(), stream=stream.value)
        cu.cuCtxSetCurrent(None)
        cudaguard.normalize(data, consumer="warp")
        print(stream.value)
        """
    )
    assert waits == [f"{out[0]}@primary0"]


# --- graphs that are being captured ---------------------------------------------------------------


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_capture_of_another_thread_goes_on(arrays, mode):
    out, waits = arrays.waits(
        f"""
        captured = new_stream()
        capture(captured, {mode})
        def work():
            cudaguard.normalize(array, consumer="warp")
            now = ctypes.c_int(0)
            cu.cuThreadExchangeStreamCaptureMode(ctypes.byref(now))
            print("mode", now.value)
        in_thread(work)
        print(end_capture(captured))
        """
    )
    assert out == ["mode 0", "0"]
    assert waits == ["P@primary0"]


def test_waiting_in_another_thread_breaks_a_capture_off_without_the_guard(arrays):
    """The other half of the test above: what the mode of the thread is there for."""
    out, _ = arrays.waits(
        """
        captured = new_stream()
        capture(captured)
        def work():
            cu.cuCtxSetCurrent(context)
            print(cu.cuCtxSynchronize())
        in_thread(work)
        print(end_capture(captured))
        """
    )
    assert out == ["900", "901"]


@pytest.mark.parametrize("is_captured", [True, False])
def test_host_does_not_wait_for_a_capture(arrays, is_captured):
    out, waits = arrays.waits(
        f"""
        producer = array.interface["stream"]
        if {is_captured}: capture(producer)
        attempt(cudaguard.normalize, array, consumer="warp")
        print(end_capture(producer))
        """
    )
    assert ("a graph is being captured" in out[0]) is is_captured
    assert bool(waits) is not is_captured
    assert out[1] == ("0" if is_captured else "1")


def test_default_stream_beside_the_capture_of_a_blocking_one(arrays):
    out, waits = arrays.waits(
        """
        blocking = ctypes.c_void_p()
        assert cu.cuStreamCreate(ctypes.byref(blocking), 0) == 0
        data = Array(new_memory(), stream=1)
        capture(blocking.value)
        attempt(cudaguard.normalize, data, consumer="warp")
        print(end_capture(blocking.value))
        """
    )
    assert "cuStreamIsCapturing answers 906: the default stream cannot be used" in out[0]
    assert (out[1], waits) == ("0", [])
