"""What follows from what is there: locks, jobs, architectures, caches."""

from __future__ import annotations

import pytest

from cudaguard.features.builds.policy import (
    GIB,
    architectures,
    differences,
    every_architecture,
    is_final,
    is_other_major,
    is_to_be_rebuilt,
    jobs,
    state_of,
)


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        ({"age": 3.1}, "stale"),
        ({"age": 2.9}, "young"),
        ({"age": -5.0}, "young"),  # a clock that was set back
        ({"age": 99.0, "holders": (7,)}, "held"),
        ({"age": 99.0, "holders": (7,), "elsewhere": "nfs"}, "held"),
        ({"age": 99.0, "workers": (7,)}, "in-use"),
        ({"age": 99.0, "elsewhere": "nfs"}, "elsewhere"),
        ({"age": 99.0, "is_ours": False}, "foreign"),
        ({"age": 99.0, "hidden": (7,)}, "hidden"),
    ],
)
def test_lock_is_stale_only_if_nobody_can_hold_it(seen, state):
    assert state_of(**seen) == state


@pytest.mark.parametrize(
    ("memory", "cores", "sources", "with_cuda", "expected"),
    [
        (None, 8, 50, True, None),
        (200 * GIB, 8, 50, True, None),  # enough for all that ninja starts
        (20 * GIB, 8, 50, True, 3),
        (20 * GIB, 8, 3, True, None),  # three files, and three compilers fit
        (20 * GIB, 8, 1, True, None),
        (1 * GIB, 8, 2, True, 1),
        (20 * GIB, 8, 50, False, 8),  # eight of ten that would be started
        (6 * GIB, 2, 50, False, 2),  # ninja starts three
        (8 * GIB, 2, 50, False, None),
        (4 * GIB, 1, 50, False, 1),  # and two on one processor
        (5 * GIB, 1, 50, False, None),
    ],
)
def test_jobs_are_limited_only_where_memory_is(memory, cores, sources, with_cuda, expected):
    assert jobs(memory, cores, sources, with_cuda=with_cuda) == expected


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ([(9, 0)], "9.0+PTX"),
        ([(8, 0), (9, 0), (8, 0)], "8.0;9.0+PTX"),
        ([(12, 1)], "9.0+PTX"),  # newer than torch is built for: torch takes its newest
        ([], ""),
    ],
)
def test_architectures_are_those_that_torch_finds(capabilities, expected):
    assert architectures(capabilities, ["sm_80", "sm_86", "sm_90", "compute_90"]) == expected


def test_architectures_are_sorted_as_torch_sorts_them():
    """As texts: the flags must be the same, or ninja compiles everything anew."""
    assert architectures([(9, 0), (10, 0)], ["sm_90", "sm_100"]) == "10.0;9.0+PTX"
    assert architectures([(9, 0)], []) == ""


def test_without_a_device_all_that_torch_and_the_compiler_know():
    flags = ["sm_50", "sm_75", "sm_90", "sm_90a", "sm_100", "compute_120"]
    known = [f"compute_{number}" for number in (75, 80, 90, 100, 120)]
    assert every_architecture(flags, known) == "7.5;9.0;10.0+PTX"
    assert every_architecture(flags, []) == ""


@pytest.mark.parametrize(
    ("nvcc", "torch", "expected"),
    [("13.0", "12.4", True), ("12.9", "12.4", False), ("", "12.4", False), ("13.0", "", False)],
)
def test_major_versions_of_cuda(nvcc, torch, expected):
    assert is_other_major(nvcc, torch) is expected


def test_stamp_that_lacks_an_entry_says_nothing_of_it():
    here = {"torch": "2.13.0", "CUDA": "13.0", "new": "x"}
    assert differences({}, here) == []
    assert differences(here, here) == []
    assert differences({"torch": "2.12.0", "CUDA": ""}, here) == [
        "torch 2.12.0, here 2.13.0",
        "CUDA none, here 13.0",
    ]


@pytest.mark.parametrize(
    ("cause", "is_stamped", "expected"),
    [
        (None, False, False),
        ("truncated", True, True),
        ("other-torch", False, True),
        ("other-torch", True, False),  # built for this torch: once more would not help
        ("own-source-missing", False, False),
        ("library-missing", False, False),
    ],
)
def test_what_compiling_anew_helps(cause, is_stamped, expected):
    assert is_to_be_rebuilt(cause, is_stamped=is_stamped) is expected


def test_what_is_put_in_place_later_is_not_held_against_a_build():
    assert is_final("own-source-missing")
    assert not is_final("library-missing")
    assert not is_final(None)
