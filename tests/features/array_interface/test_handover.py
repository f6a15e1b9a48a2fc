"""The view, whom it keeps alive, what is read how often, and whose errors go out."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import pytest

import cudaguard
from cudaguard import ArrayInterfaceError

from .producers import interface, make

PROTOCOLS = ("__dlpack__", "__dlpack_device__", "__array__", "__array_interface__", "__len__",
             "__array_struct__", "__buffer__", "__iter__", "__index__", "__getitem__")  # fmt: skip


def test_view_has_the_interface_and_no_other_protocol():
    producer = make(stream=None)
    view = cudaguard.normalize(producer)
    assert view.__cuda_array_interface__ == interface()
    assert not [name for name in PROTOCOLS if hasattr(view, name)]
    assert not hasattr(view, "__dict__")
    assert repr(view) == "<cudaguard view of tests.features.array_interface.producers.Producer>"
    with pytest.raises(AttributeError):
        view.__cuda_array_interface__ = {}


def test_view_is_a_snapshot_and_the_producer_is_read_once():
    producer = make(stream=None)
    view = cudaguard.normalize(producer)
    producer.interface["shape"] = (8,)
    assert view.__cuda_array_interface__ == interface()
    assert view.__cuda_array_interface__ is view.__cuda_array_interface__
    assert producer.reads == 1
    assert producer.interface == interface(shape=(8,), stream=None)


def test_view_keeps_the_array_alive_and_lets_it_go():
    producer = make(stream=None)
    life = weakref.ref(producer)
    view = cudaguard.normalize(producer)
    del producer
    gc.collect()
    assert life() is not None
    end = weakref.ref(view)
    del view
    assert life() is None  # at once: no cycle, no cache
    assert end() is None


def test_view_of_a_view_is_one_of_the_array():
    producer = make(stream=None, typestr="?")
    view = cudaguard.normalize(producer)
    assert cudaguard.normalize(view) is view
    other = cudaguard.normalize(view, consumer="dali")
    assert other.__cuda_array_interface__["typestr"] == "|?"
    assert other.owner is producer
    with pytest.raises(
        ArrayInterfaceError, match=r"of tests\.features\.array_interface\.producers\.Producer"
    ):
        cudaguard.normalize(view, consumer="cuda.core", stream="nonsense")


class Instance:
    """The interface is an attribute of the instance, as CV-CUDA has it."""


class ByGetattr:
    def __getattr__(self, name):
        if name == "__cuda_array_interface__":
            return interface(shape=[4])
        raise AttributeError(name)


def test_interface_may_be_an_attribute_of_any_kind():
    instance = Instance()
    instance.__cuda_array_interface__ = interface(shape=[4])
    for array in (instance, ByGetattr()):
        assert cudaguard.normalize(array).__cuda_array_interface__ == interface()


class Failing:
    def __init__(self, error):
        self.error = error
        self.reads = 0

    @property
    def __cuda_array_interface__(self):
        self.reads += 1
        raise self.error


@pytest.mark.parametrize(
    "error", [RuntimeError("requires grad"), KeyError("bf16"), ValueError("sharded"),
              TypeError("of its own"), KeyboardInterrupt()],
)  # fmt: skip
def test_errors_of_the_producer_go_out(error):
    for function in (cudaguard.normalize, cudaguard.validate):
        producer = Failing(error)
        with pytest.raises(type(error)) as caught:
            function(producer)
        assert caught.value is error
        assert producer.reads == 1


@pytest.mark.parametrize("array", [object(), 4, None, [1.0], Failing(AttributeError("on the CPU"))])
def test_what_has_no_interface_is_refused(array):
    with pytest.raises(ArrayInterfaceError) as caught:
        cudaguard.normalize(array)
    assert caught.value.field == "__cuda_array_interface__"
    assert type(caught.value.__cause__) is AttributeError
    assert "hand over an array on a CUDA device" in str(caught.value)
    (finding,) = cudaguard.validate(array)
    assert (finding.severity, finding.id) == ("error", "CG833")


@pytest.mark.parametrize(
    ("module", "advice"), [("torch", r"\.cuda\(\)"), ("jax", "device_put"), ("nvidia.dali", "gpu")]
)
def test_array_on_the_cpu_of_a_known_library_gets_its_own_advice(module, advice):
    tensor = type("Tensor", (), {"__module__": module})
    mine = type("Mine", (tensor,), {})
    for kind in (tensor, mine):
        with pytest.raises(ArrayInterfaceError, match=advice):
            cudaguard.normalize(kind(), consumer="cupy")


def test_error_of_foreign_code_is_the_cause():
    class Odd:
        def __index__(self):
            raise OverflowError("odd")

    with pytest.raises(ArrayInterfaceError) as caught:
        cudaguard.normalize(make(stream=Odd()))
    assert type(caught.value.__cause__) is OverflowError


@pytest.mark.parametrize("function", [copy.copy, copy.deepcopy, pickle.dumps])
def test_view_is_neither_copied_nor_pickled(function):
    with pytest.raises(TypeError, match="take the array"):
        function(cudaguard.normalize(make(stream=None)))
