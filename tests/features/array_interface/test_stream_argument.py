"""On which stream is the work? What the array says, what the caller says, and what 0 means."""

from __future__ import annotations

import ctypes

import pytest

import cudaguard
from cudaguard import ArrayInterfaceError

from .producers import Number, Producer, interface, make


def library(module, **attributes):
    """An object of a class of that module."""
    return type("Thing", (), {"__module__": module, **attributes})()


def stream_of(array, **how):
    entries = cudaguard.normalize(array, **how).__cuda_array_interface__
    return entries.get("stream", "absent"), entries["version"]


HANDLES = [
    (7, 7), (1, 1), (2, 2), (Number(7), 7), (library("torch.cuda.streams", cuda_stream=7), 7),
    (library("torch.cuda.streams", cuda_stream=0), 1), (library("cupy.cuda.stream", ptr=7), 7),
    (library("cupy.cuda.stream", ptr=0), 1), (library("cupy.cuda.stream", ptr=2), 2),
    (library("pycuda._driver", handle=7), 7),
    (library("numba.cuda.cudadrv.driver", handle=ctypes.c_void_p(7)), 7),
    (library("numba.cuda.cudadrv.driver", handle=ctypes.c_void_p(0)), 1),
    (library("numba.cuda.cudadrv.driver", handle=ctypes.c_void_p(None)), 1),
    (library("cuda.core", __cuda_stream__=lambda self: (0, 7)), 7),
    (library("cuda.core", __cuda_stream__=lambda self: (0, 1), handle=object()), 1),
]  # fmt: skip


@pytest.mark.parametrize(("stream", "handle"), HANDLES)
@pytest.mark.parametrize("said", [..., None, 0, 5, 7])
@pytest.mark.parametrize("version", [2, 3, ...])
def test_what_the_caller_says_counts_and_comes_with_version_3(stream, handle, said, version):
    array = make(stream=said, version=version)
    assert stream_of(array, stream=stream) == (handle, 3)
    assert stream_of(array, stream=stream, consumer="cuda.core") == (handle, 3)


def test_array_that_says_the_same_is_handed_over_as_it_is():
    array = make(stream=7)
    assert cudaguard.normalize(array, stream=7) is array


@pytest.mark.parametrize("said", [..., None, 0, 5])
def test_caller_may_vouch_that_nothing_is_pending(said):
    assert stream_of(make(stream=said), stream=None) == ("absent", 3)
    assert stream_of(make(stream=said, version=2), stream=None) == ("absent", 2)
    assert stream_of(make(stream=said, version=2), stream=None, consumer="cuda.core")[1] == 3


@pytest.mark.parametrize(
    "stream",
    [0, -1, 1 << 64, True, "7", 7.0, (7,), object(), Number(-1), Number(0),
     library("somewhere", handle=0), library("torch", cuda_stream="7"),
     library("cuda.core", __cuda_stream__=lambda self: 7)],
)  # fmt: skip
def test_what_stands_for_no_stream_is_refused(stream):
    with pytest.raises(ArrayInterfaceError) as caught:
        cudaguard.normalize(make(), stream=stream)
    assert caught.value.field == "stream"
    assert str(caught.value).startswith("The argument stream, given for an array of ")
    assert "producer" not in caught.value.remedy  # it is not to blame


@pytest.mark.parametrize("module", ["numba.cuda.cudadrv.devicearray", "numba_cuda.x", "cupy"])
def test_zero_means_what_the_library_means_by_it(module, monkeypatch):
    monkeypatch.delenv("NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM", raising=False)
    kind = type("Array", (Producer,), {"__module__": module})
    for version in (2, 3):
        assert stream_of(kind(interface(stream=0, version=version))) == (1, 3)
    derived = type("Mine", (kind,), {})
    assert stream_of(derived(interface(stream=0)), consumer="cuda.core") == (1, 3)
    (finding,) = cudaguard.validate(kind(interface(stream=0)))
    assert finding.severity == "warning"


@pytest.mark.parametrize(("value", "established"), [("1", False), ("0", True), ("", True)])
def test_zero_of_numba_is_not_guessed_at_under_per_thread_streams(monkeypatch, value, established):
    monkeypatch.setenv("NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM", value)
    kind = type("DeviceNDArray", (Producer,), {"__module__": "numba.cuda"})
    array = kind(interface(stream=0))
    if established:
        assert stream_of(array) == (1, 3)
        assert cudaguard.validate(array)[0].severity == "warning"
    else:
        assert cudaguard.validate(array)[0].severity == "error"
        with pytest.raises(ArrayInterfaceError, match="NUMBA_CUDA_PER_THREAD") as caught:
            cudaguard.normalize(array)
        assert caught.value.field == "stream"
        assert stream_of(array, stream=2) == (2, 3)


@pytest.mark.parametrize("module", ["pycuda.gpuarray", "somewhere", "numbat"])
def test_zero_of_others_is_refused(module):
    kind = type("Array", (Producer,), {"__module__": module})
    with pytest.raises(ArrayInterfaceError, match="0 is forbidden") as caught:
        cudaguard.normalize(kind(interface(stream=0)))
    assert "stream=1" in caught.value.remedy
