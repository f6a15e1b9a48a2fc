"""Compute capabilities of the GPUs, by NVML: as the driver has them once it is asked."""

from __future__ import annotations

import pytest

from .program import on_both_drivers

BY_NVML = "from cudaguard.system.machine import compute_capabilities\n"
BY_DRIVER = """
def by_driver():
    from cudaguard.system.driver import Driver
    driver().cuInit(0)
    return Driver().capabilities()
"""


@pytest.mark.parametrize(
    ("visible", "expected"),
    [("0", "((7, 0), (9, 0))"), (None, "((7, 0), (9, 0))"), ("", "()"), ("-1", "()")],
)
def test_all_gpus_unless_all_are_hidden(program, visible, expected):
    code = BY_NVML + "print(compute_capabilities())"
    assert program.output(code, visible=visible, capability=["7.0", "9.0"]) == [expected]


@pytest.mark.parametrize("rc", [{"nvmlInit": 9}, {"nvmlDeviceGetCudaComputeCapability": 3}])
def test_nvml_that_does_not_tell(program, rc):
    assert program.output(BY_NVML + "print(compute_capabilities())", rc=rc) == ["()"]


@on_both_drivers
def test_the_driver_is_not_touched(program):
    ran = program.run(BY_NVML + "print(len(compute_capabilities()) > 0)\nprint(asked())")
    assert ran.out == ["True", "3"]
    assert program.is_real or not [c for c in ran.calls if c in ("cuInit", "cuDeviceGetAttribute")]


@on_both_drivers
def test_the_machines_driver_agrees(program):
    ran = program.run(
        BY_NVML + BY_DRIVER + "print(sorted(compute_capabilities()) == sorted(by_driver()) != [])"
    )
    assert ran.out == ["True"]
