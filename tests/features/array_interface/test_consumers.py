"""What each consumer is given, and what it is not."""

from __future__ import annotations

import sys
import types

import pytest

import cudaguard
from cudaguard import ArrayInterfaceError
from cudaguard.features.array_interface import consumers
from cudaguard.features.array_interface.consumers import CONSUMERS, consumer_at, consumer_for
from cudaguard.system.facts import Facts

from .producers import Producer, interface, make

NAMES = [one.name for one in CONSUMERS]
# The consumers of which an entry is true: what is not listed takes the thing as it is.
FALSE_FRIENDS = {
    "big-endian": ({"typestr": ">f4"}, "typestr", {"dali", "torch", "cupy", "pylibraft"}),
    "complex": ({"typestr": "<c8"}, "typestr", {"dali"}),
    "masked": ({"mask": Producer(interface(typestr="|b1"))}, "mask", set(NAMES)),
    "read-only": ({"data": (0x1000, True)}, "data", {"torch"}),
    "backwards": ({"strides": (-4,)}, "strides", {"dali", "torch", "pylibraft"}),
    "odd steps": ({"strides": (6,)}, "strides", {"dali", "torch", "pylibraft"}),
    "gaps": ({"strides": (8,)}, "strides", {"dali", "pylibraft"}),
    "repeated": ({"strides": (0,)}, "strides", {"dali", "pylibraft"}),
    "version 2": ({"version": 2}, "version", {"cuda.core"}),
    "version 0": ({"version": 0}, "version", {"cuda.core"}),
    "no version": ({"version": ...}, "version", {"cuda.core"}),
}


@pytest.mark.parametrize("consumer", NAMES)
@pytest.mark.parametrize("case", FALSE_FRIENDS)
def test_what_a_consumer_cannot_be_given_is_refused_for_it_only(case, consumer):
    changes, field, refusing = FALSE_FRIENDS[case]
    assert refusing <= set(NAMES)
    producer = make(**changes)
    if consumer not in refusing:
        assert cudaguard.normalize(producer, consumer=consumer) is not None
        return
    with pytest.raises(ArrayInterfaceError) as caught:
        cudaguard.normalize(producer, consumer=consumer)
    assert caught.value.field == field
    assert consumer in caught.value.rule
    assert caught.value.remedy


@pytest.mark.parametrize("consumer", NAMES)
def test_canonical_array_is_handed_over_as_it_is(consumer):
    for changes in ({}, {"strides": (4,)}, {"descr": [("", "<f4")]}, {"typestr": "|u1"}):
        producer = make(**changes)
        assert cudaguard.normalize(producer, consumer=consumer) is producer
        assert producer.reads == 1


@pytest.mark.parametrize("consumer", NAMES)
@pytest.mark.parametrize("version", [0, 1, 2, ...])
def test_version_is_raised_for_those_who_insist_only(consumer, version):
    producer = make(version=version, stream=...)
    expected = {"cvcuda": 2, "nvimgcodec": 2, "jax": 2, "cuda.core": 3}.get(consumer, 0)
    said = 2 if version is ... else version
    if consumer == "cuda.core":
        result = cudaguard.normalize(producer, consumer=consumer, stream=None)
    else:
        result = cudaguard.normalize(producer, consumer=consumer)
    assert result.__cuda_array_interface__ == interface(version=max(said, expected))


@pytest.mark.parametrize("consumer", NAMES)
def test_stream_none_is_left_out_where_it_is_stumbled_over(consumer):
    producer = make(stream=None)
    result = cudaguard.normalize(producer, consumer=consumer)
    if consumer == "dali":
        assert result.__cuda_array_interface__ == interface()
    else:
        assert result is producer


@pytest.mark.parametrize(
    ("version", "takes"),
    [("1.31.0", True), ("1.32.0", False), ("1.36.0", False), ("1.37.0", True), ("2.4.0", True),
     ("odd", False), (None, False)],
)  # fmt: skip
def test_dali_stumbles_over_none_in_the_versions_that_did(version, takes, monkeypatch):
    installed = {"nvidia-dali-cuda120": version}
    monkeypatch.setattr(Facts, "version", lambda _, dist: installed.get(dist))
    monkeypatch.setattr(consumers, "_as_installed", consumers._as_installed.__wrapped__)
    profile = consumer_at("nvidia.dali")
    assert profile.takes_no_stream is takes
    assert profile.boolean == "|?"
    assert profile.name == "dali"
    # Before 1.32 it did not look at streams at all: it is made to wait.
    assert profile.heeds_stream is (version != "1.31.0")


@pytest.mark.parametrize("spelled", ["|b1", "|?", "=?", "?", "<b1"])
def test_truth_values_are_spelled_as_the_consumer_reads_them(spelled):
    producer = make(typestr=spelled)
    dali = cudaguard.normalize(producer, consumer="dali")
    assert dali.__cuda_array_interface__["typestr"] == "|?"
    assert (dali is producer) is (spelled == "|?")
    others = cudaguard.normalize(producer, consumer="torch")
    legal = spelled if spelled == "<b1" else "|b1"
    assert others.__cuda_array_interface__["typestr"] == legal
    assert (others is producer) is (spelled == legal)


def test_gaps_are_told_from_dimensions_that_are_never_stepped_along():
    fine = [((2, 3), (12, 4)), ((1, 3), (999, 4)), ((2, 1), (4, 0)), ((0, 3), (8, 8)), ((), ())]
    for shape, strides in fine:
        data = (0 if 0 in shape else 0x1000, False)
        producer = make(shape=shape, strides=strides, data=data)
        assert cudaguard.normalize(producer, consumer="dali") is producer
    for strides in ((4, 8), (16, 4), (12, 8), (-12, 4)):
        with pytest.raises(ArrayInterfaceError, match="C order"):
            cudaguard.normalize(make(shape=(2, 3), strides=strides), consumer="dali")


# --- who is meant -------------------------------------------------------------------------------


def test_consumer_is_a_module_its_name_or_a_class_of_it():
    module = types.ModuleType("nvidia.dali.backend")
    kind = type("TensorGPU", (), {"__module__": "nvidia.dali.backend_impl"})
    producer = make(typestr="|b1")
    for consumer in ("dali", module, kind):
        result = cudaguard.normalize(producer, consumer=consumer)
        assert result.__cuda_array_interface__["typestr"] == "|?"


@pytest.mark.parametrize(
    ("module", "name"),
    [("torch", "torch"), ("torch.cuda", "torch"), ("nvcv", "cvcuda"), ("numba", "numba"),
     ("numba.cuda.cudadrv.devicearray", "numba"), ("jaxlib.xla_extension", "jax"),
     ("cuda.core.experimental", "cuda.core"), ("pycuda.gpuarray", "pycuda"), ("ucp", "ucxx")],
)  # fmt: skip
def test_module_lies_in_a_consumer(module, name):
    assert consumer_at(module) is consumer_for(name)


@pytest.mark.parametrize("consumer", ["", "torchvision", "nvidia", "cuda", sys, int, 4, object()])
def test_unknown_consumer_is_a_value_error_with_the_list(consumer):
    with pytest.raises(ValueError, match="is not known; ") as caught:
        cudaguard.normalize(make(), consumer=consumer)
    for name in NAMES:
        assert name in str(caught.value)


@pytest.mark.parametrize(
    ("asked", "meant"),
    [("nvidia.dali", "dali"), ("nvidia.dali.fn", "dali"), ("Torch", "torch"), ("cuppy", "cupy")],
)
def test_nearest_name_is_suggested(asked, meant):
    with pytest.raises(ValueError, match=f"did you mean '{meant}'"):
        cudaguard.normalize(make(), consumer=asked)


# --- the data -----------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", CONSUMERS, ids=lambda profile: profile.name)
def test_profile_of_a_consumer_is_sound(profile):
    assert profile.evidence
    assert profile.strides in ("any", "forward", "dense")
    assert 0 <= profile.least_version <= 3
    assert not profile.takes_mask
    assert bool(profile.dists) is bool(profile.since)
    for versions, changes in profile.since:
        from packaging.specifiers import SpecifierSet

        assert SpecifierSet(versions)
        assert profile.replace(**changes) != profile
