"""Consumers that do not look at streams read after the producer's work all the same.

What the driver is asked to do stands in the log of the stub: nothing is assumed.
"""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from cudaguard.features.array_interface.consumers import CONSUMERS, IGNORES

from ...features.cuda_init.program import Program

IGNORING = [one.name for one in CONSUMERS if one.stream == IGNORES]
HEEDING = [one.name for one in CONSUMERS if one.stream != IGNORES]

START = """
import ctypes
cu = ctypes.CDLL("libcuda.so.1")
cu.cuInit(0)
context = ctypes.c_void_p()
cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cu.cuCtxSetCurrent(context)


def new_stream():
    stream = ctypes.c_void_p()
    assert cu.cuStreamCreate(ctypes.byref(stream), 1) == 0
    return stream.value


def new_memory():
    address = ctypes.c_uint64()
    assert cu.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64)) == 0
    return address.value


class Array:
    def __init__(self, address, stream=None, version=3, read_only=False):
        self.interface = {"shape": (4,), "typestr": "<f4", "data": (address, read_only),
                          "version": version}
        if stream is not None:
            self.interface["stream"] = stream

    @property
    def __cuda_array_interface__(self):
        return self.interface


array = Array(new_memory(), new_stream())
print("start", array.interface["stream"])
"""

TORCH = """
    class Stream:
        cuda_stream = 0

    class cuda:
        initialized = True
        asked = []

        @classmethod
        def is_initialized(cls):
            return cls.initialized

        @classmethod
        def current_stream(cls, device=None):
            assert cls.initialized, "that would initialize torch"
            cls.asked.append(device)
            return Stream
"""
WAITING = ("cuStreamSynchronize", "cuEventRecord", "cuStreamWaitEvent")


class Arrays(Program):
    """Runs programs with arrays on the wide stub."""

    def ordered(self, code: str, **how: Any) -> tuple[list[str], list[str]]:
        """Run START and the code; return what it printed, and the waits as ``call(handle)``.

        The producer's stream is called P, others by their number.
        """
        ran = self.run(START + textwrap.dedent(code), **how)
        assert ran.err == ""
        out = [line for line in ran.out if not line.startswith("start ")]
        (producers,) = [int(line[6:]) for line in ran.out if line.startswith("start ")]
        return out, [wait.partition("@")[0] for wait in self.waits(producers)]

    def waits(self, producers: int) -> list[str]:
        """Return the waits of the last run: ``call(handle)@context``, ``call(handle)=400@...``."""
        waits = []
        for call in self.stubs.calls(self.log):
            if call.name in WAITING:
                told = dict(item.split("=") for item in call.args.split())
                handle = int(told["stream"], 0)
                which = "P" if handle == producers else handle
                status = f"={call.rc}" if call.rc else ""
                waits.append(f"{call.name}({which}){status}@{call.context}")
        return waits


@pytest.fixture
def arrays(child, driver_stubs):
    return Arrays(child, driver_stubs.wide())


@pytest.mark.parametrize("consumer", IGNORING)
def test_host_waits_for_consumers_whose_stream_is_not_known(arrays, consumer):
    out, waits = arrays.ordered(
        f"print(cudaguard.normalize(array, consumer={consumer!r}) is array)"
    )
    assert out == ["True"]
    assert waits == ["cuStreamSynchronize(P)"]


@pytest.mark.parametrize("consumer", [None, *HEEDING])
def test_consumers_that_wait_themselves_are_left_to_it(arrays, consumer):
    out, waits = arrays.ordered(
        f"""
        print(cudaguard.normalize(array, consumer={consumer!r}) is array)
        array.interface["shape"] = [4]
        print(cudaguard.normalize(array, consumer={consumer!r}) is array)
        """
    )
    assert out == ["True", "False"]
    assert waits == []


def test_stream_of_torch_waits_for_an_event_and_the_host_does_not(arrays):
    arrays.module("torch", TORCH)
    out, waits = arrays.ordered(
        """
        import torch
        torch.Stream.cuda_stream = new_stream()
        cudaguard.normalize(array, consumer="torch")
        print(torch.Stream.cuda_stream, torch.cuda.asked)
        """
    )
    stream, device = out[0].split()
    assert device == "[0]"
    assert waits == ["cuEventRecord(P)", f"cuStreamWaitEvent({stream})"]
    calls = arrays.stubs.calls(arrays.log)
    (made,) = [call for call in calls if call.name == "cuEventCreate"]
    assert made.args.startswith("flags=2")  # without times, which would cost
    names = [call.name for call in calls]
    at = names.index
    assert at("cuEventCreate") < at("cuEventRecord") < at("cuStreamWaitEvent")
    assert at("cuStreamWaitEvent") < at("cuEventDestroy_v2")
    assert names.count("cuCtxPushCurrent_v2") == names.count("cuCtxPopCurrent_v2") > 0


@pytest.mark.parametrize("initialized", [True, False])
def test_default_stream_of_torch_is_the_legacy_one(arrays, initialized):
    arrays.module("torch", TORCH)
    _, waits = arrays.ordered(
        f"""
        import torch
        torch.cuda.initialized = {initialized}
        cudaguard.normalize(array, consumer="torch")
        cudaguard.normalize(Array(new_memory(), stream=1), consumer="torch")
        """
    )
    assert waits == ["cuEventRecord(P)", "cuStreamWaitEvent(1)"]


def test_same_stream_needs_no_waiting(arrays):
    arrays.module("torch", TORCH)
    _, waits = arrays.ordered(
        """
        import torch
        torch.Stream.cuda_stream = array.interface["stream"]
        cudaguard.normalize(array, consumer="torch")
        """
    )
    assert waits == []


def test_it_is_told_once_for_each_class_and_consumer(arrays):
    out, _ = arrays.ordered(
        """
        import logging
        logging.basicConfig(level="INFO", stream=sys.stdout)
        for _ in range(3):
            cudaguard.normalize(array, consumer="warp")
        cudaguard.normalize(array, consumer="mpi4py")
        print(*(f"{f.id} {f.severity} {f.what}" for f in found()), sep="\\n")
        """
    )
    text = "{} ignores the stream of __main__.Array: the host has waited for it."
    assert out == [
        "INFO:cudaguard:CG831: " + text.format("warp"),
        "INFO:cudaguard:CG831: " + text.format("mpi4py"),
        "CG831 info " + text.format("warp"),
        "CG831 info " + text.format("mpi4py"),
    ]


@pytest.mark.parametrize("call", ["cuStreamSynchronize", "cuStreamIsCapturing"])
def test_what_the_driver_refuses_is_an_error_with_the_remedy(arrays, call):
    ran = arrays.run(START + "attempt(cudaguard.normalize, array, consumer='warp')", rc={call: 900})
    assert ran.err == ""
    assert ran.out[-1].startswith("ArrayInterfaceError __cuda_array_interface__['stream']")
    assert f"{call} answers 900" in ran.out[-1]
    assert "stream=None" in ran.out[-1]
    assert ("cuStreamSynchronize" in ran.calls) is (call == "cuStreamSynchronize")


@pytest.mark.parametrize("call", ["cuEventCreate", "cuEventRecord", "cuStreamWaitEvent"])
def test_everything_is_put_back_where_an_event_fails(arrays, call):
    arrays.module("torch", TORCH)
    ran = arrays.run(
        START + "import torch\nattempt(cudaguard.normalize, array, consumer='torch')",
        rc={call: 900},
    )
    assert f"{call} answers 900" in ran.out[-1]
    assert ran.calls.count("cuCtxPushCurrent_v2") == ran.calls.count("cuCtxPopCurrent_v2") > 0
    assert ran.calls.count("cuThreadExchangeStreamCaptureMode") == 2
    assert ran.calls.count("cuEventDestroy_v2") == (call != "cuEventCreate")


def test_driver_without_contexts_of_streams_is_used_as_it_is(arrays):
    ran = arrays.run(
        START + "cudaguard.normalize(array, consumer='warp')",
        rc={"cuStreamGetCtx": 500, "cuStreamIsCapturing": 500},
    )
    assert "cuStreamSynchronize" in ran.calls
    assert "cuCtxPushCurrent_v2" not in ran.calls


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
    assert not set(WAITING) & set(ran.calls)


def test_nothing_is_asked_in_a_forked_child(arrays):
    ran = arrays.run(
        START + "cudaguard.normalize(array, consumer='warp')\n"
        "in_child(lambda: cudaguard.normalize(array, consumer='warp'))"
    )
    calls = arrays.stubs.calls(arrays.log)
    assert ran.err == ""
    assert len({call.pid for call in calls}) == 1
    assert ran.calls.count("cuStreamSynchronize") == 1
