"""Streams are those of a context, and the wait is made in the right one.

The current context stands on every line of the stub's log: that of the call that waits decides
which default stream a handle means.
"""

from __future__ import annotations

import textwrap

import pytest

from .test_order import START, TORCH, Arrays

# Device 1 has data of a pool, and device 0 is current: as with two GPUs and cudaMallocAsync.
POOL = """
contexts = [context, ctypes.c_void_p()]
assert cu.cuDevicePrimaryCtxRetain(ctypes.byref(contexts[1]), 1) == 0


def of_pool(device):
    assert cu.cuCtxSetCurrent(contexts[device]) == 0
    address = ctypes.c_uint64()
    assert cu.cuMemAllocAsync(ctypes.byref(address), ctypes.c_size_t(64), None) == 0
    assert cu.cuCtxSetCurrent(contexts[0]) == 0
    return address.value


def current():
    handle = ctypes.c_void_p()
    assert cu.cuCtxGetCurrent(ctypes.byref(handle)) == 0
    return handle.value


def own_context():
    handle = ctypes.c_void_p()
    assert cu.cuCtxCreate_v2(ctypes.byref(handle), 0, 0) == 0
    return handle


def in_thread(function):
    import threading

    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def capture(stream, mode=0):
    assert cu.cuStreamBeginCapture_v2(ctypes.c_void_p(stream), mode) == 0


def end_capture(stream):
    return cu.cuStreamEndCapture(ctypes.c_void_p(stream), ctypes.byref(ctypes.c_void_p()))
"""


@pytest.fixture
def places(child, driver_stubs):
    """Runs code; returns what it printed, and the waits with the contexts that were current."""
    arrays = Arrays(child, driver_stubs.wide())
    arrays.module("torch", TORCH)

    def run(code, **controls):
        ran = arrays.run(START + POOL + textwrap.dedent(code), **controls)
        assert ran.err == ""
        (start,) = [line for line in ran.out if line.startswith("start ")]
        out = [line for line in ran.out if line != start]
        retained = ran.calls.count("cuDevicePrimaryCtxRetain")
        released = ran.calls.count("cuDevicePrimaryCtxRelease_v2")
        assert retained - released == 2  # those of the program
        return out, arrays.waits(int(start[6:]))

    return run


@pytest.mark.parametrize("stream", [1, 2])
def test_memory_of_a_pool_is_waited_for_on_its_own_device(places, stream):
    out, waits = places(
        f"""
        data = Array(of_pool(1), stream={stream})
        before = current()
        cudaguard.normalize(data, consumer="warp")
        print(current() == before)
        """
    )
    assert (out, waits) == (["True"], [f"cuStreamSynchronize({stream})@primary1"])


def test_default_stream_of_torch_is_that_of_the_primary_context(places):
    """PyCUDA's own context is current: torch's stream is not the default stream of that one."""
    _, waits = places(
        """
        import torch
        own = own_context()
        data = Array(new_memory(), stream=new_stream())
        print(data.interface["stream"])
        cudaguard.normalize(data, consumer="torch")
        """
    )
    recorded, *waiting = waits
    assert recorded.startswith("cuEventRecord(")
    assert recorded.endswith("@own1")
    # A program that lets torch use the current context reads on its default stream.
    assert sorted(waiting) == ["cuStreamWaitEvent(1)@own1", "cuStreamWaitEvent(1)@primary0"]


def test_default_streams_of_two_contexts_are_two_streams(places):
    _, waits = places(
        """
        import torch
        own = own_context()
        data = Array(new_memory(), stream=1)
        cu.cuCtxSetCurrent(context)
        cudaguard.normalize(data, consumer="torch")
        cudaguard.normalize(Array(new_memory(), stream=1), consumer="torch")
        """
    )
    assert waits == ["cuEventRecord(1)@own1", "cuStreamWaitEvent(1)@primary0"]


def test_host_waits_where_the_context_of_torch_is_yet_to_come(places):
    _, waits = places(
        """
        import torch
        torch.cuda.initialized = False
        own = own_context()
        data = Array(new_memory(), stream=1)
        cu.cuCtxPopCurrent_v2(None)
        cu.cuDevicePrimaryCtxReset_v2(0)
        cudaguard.normalize(data, consumer="torch")
        """
    )
    assert waits == ["cuStreamSynchronize(1)@own1"]


def test_default_stream_of_nobody_is_refused(places):
    out, waits = places(
        """
        data = Array(of_pool(1), stream=1)
        cu.cuDevicePrimaryCtxReset_v2(1)
        attempt(cudaguard.normalize, data, consumer="warp")
        """
    )
    assert waits == []
    assert "it is the default stream of a context, and none is current or active" in out[0]


def test_stream_of_a_green_context_is_waited_for_in_the_primary_one(places):
    """A green context can be current to one thread only, and may be."""
    out, waits = places(
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
    assert waits == [f"cuStreamSynchronize({out[0]})@primary0"]


def test_host_waits_for_a_stream_that_takes_no_event_of_its_context(places):
    out, waits = places(
        """
        import torch
        cudaguard.normalize(array, consumer="torch")
        print(*(f.what for f in found()))
        """,
        rc={"cuEventRecord": 400},
    )
    assert "the host has waited for it" in out[0]
    assert waits == ["cuEventRecord(P)=400@primary0", "cuStreamSynchronize(P)@primary0"]


# --- graphs that are being captured ---------------------------------------------------------------


@pytest.mark.parametrize("consumer", ["warp", "torch"])
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_capture_of_another_thread_goes_on(places, consumer, mode):
    out, waits = places(
        f"""
        import torch
        captured = new_stream()
        capture(captured, {mode})
        def work():
            cudaguard.normalize(array, consumer={consumer!r})
            now = ctypes.c_int(0)
            cu.cuThreadExchangeStreamCaptureMode(ctypes.byref(now))
            print("mode", now.value)
        in_thread(work)
        print(end_capture(captured))
        """
    )
    assert out == ["mode 0", "0"]
    assert len(waits) == (1 if consumer == "warp" else 2)


def test_waiting_in_another_thread_breaks_a_capture_off_without_the_guard(places):
    """The other half of the test above: what the mode of the thread is there for."""
    out, _ = places(
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


@pytest.mark.parametrize(
    ("captured", "waits"),
    [("nothing", True), ("reader", False), ("producer", False), ("both", True)],
)
def test_captures_are_not_broken_off(places, captured, waits):
    out, waited = places(
        f"""
        import torch
        torch.Stream.cuda_stream = reader = new_stream()
        producer = array.interface["stream"]
        if {captured!r} == "reader": capture(reader)
        if {captured!r} in ("producer", "both"): capture(producer)
        if {captured!r} == "both":
            event = ctypes.c_void_p()
            assert cu.cuEventCreate(ctypes.byref(event), 2) == 0
            assert cu.cuEventRecord(event, ctypes.c_void_p(producer)) == 0
            assert cu.cuStreamWaitEvent(ctypes.c_void_p(reader), event, 0) == 0
        print("now")
        attempt(cudaguard.normalize, array, consumer="torch")
        print({{"nothing": 0, "reader": end_capture(reader)}}.get({captured!r}))
        if {captured!r} in ("producer", "both"): print(end_capture(producer))
        """
    )
    at = out.index("now")
    assert ("ok" in out[at + 1]) is waits
    assert ("a graph is being captured" in out[at + 1]) is not waits
    assert out[-1] == "0"  # the capture is whole
    assert len(waited) == (2 if waits else 0) + (2 if captured == "both" else 0)


@pytest.mark.parametrize("is_captured", [True, False])
def test_host_does_not_wait_for_a_capture(places, is_captured):
    out, waits = places(
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


def test_default_stream_beside_the_capture_of_a_blocking_one(places):
    out, waits = places(
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
