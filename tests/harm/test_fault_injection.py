"""The guard's own failure never breaks a program: see `fault_injection.py`, which is run here."""

from __future__ import annotations

import os

import pytest

from .fault_injection import PROGRAMS, Laboratory, sample

pytestmark = [
    pytest.mark.incidents,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="one of the programs forks"),
]


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory) -> Laboratory:
    return Laboratory(tmp_path_factory.mktemp("laboratory"))


def breaks(laboratory: Laboratory, programs: list[str], number: int, seed: int) -> dict[str, str]:
    """Try some faults; return those after which a program does not end as it should."""
    faults = sample(laboratory.faults(*programs), number, seed)
    ends = laboratory.try_each(faults, seconds=1200)
    assert len(ends) == number
    return {" ".join(fault): said for fault, said in ends.items() if said}


def test_nearly_every_program_goes_on_when_a_function_of_the_guard_fails(laboratory):
    broken = breaks(laboratory, [*PROGRAMS], 200, seed=0)
    assert len(broken) <= 2, broken


@pytest.mark.parametrize("program", PROGRAMS)
def test_copy_of_the_guard_that_is_never_told_to_fail_is_the_guard(laboratory, program):
    faults = laboratory.faults(program)
    assert len(laboratory.fine[program]) == 1
    guarded = laboratory.run(program)
    assert (guarded.status, guarded.reports) == (0, 0), guarded
    # And the fault is in the guard: a program without one does not come by it.
    for error in sample(faults, 3, 0):
        plain = laboratory.run(program, "off", FAULT=f"{error.error} {error.function}")
        assert (plain.status, plain.out) == (guarded.status, guarded.out)
