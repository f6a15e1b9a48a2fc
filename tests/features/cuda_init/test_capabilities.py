"""Compute capabilities of the visible devices, by NVML: as the driver has them once it is asked."""

from __future__ import annotations

import pytest

from .program import on_both_drivers

BY_NVML = "from cudaguard.system.devices import compute_capabilities\n"
BY_DRIVER = """
def by_driver():
    from cudaguard.system.driver import Driver
    driver().cuInit(0)
    return Driver().capabilities()
"""
INSTANCE = "MIG-12345678-9abc-def0-1234-56789abcdef0"
# Values of CUDA_VISIBLE_DEVICES, with devices numbered as they lie on the bus.
LISTED = [
    None, "", "-1", "7", "0", "1,0", " 1 , 0", "1,7,0", "1,-1,0", "1,x", "x", "1x,0", "0,1,0", ",0",
    "GPU-c1,GPU-c0a1", "GPU-c1,GPU-c", "GPU-c1,0", "0,GPU-c1", "GPU-c0,GPU-c0a", "GPU-e", "GPU-",
    INSTANCE, f"{INSTANCE},{INSTANCE}", "MIG-1", "GPU-c1,MIG-1", f"GPU-c1,{INSTANCE}",
]  # fmt: skip


@pytest.mark.parametrize("listed", LISTED)
def test_the_driver_agrees(program, listed):
    ran = program.run(
        BY_NVML + BY_DRIVER + "print(compute_capabilities())\nprint(by_driver())",
        devices=3,
        visible=listed,
        order="PCI_BUS_ID",
        mig={INSTANCE: 1} if listed is not None else None,
    )
    by_nvml, by_driver = ran.out
    assert by_nvml == by_driver


def test_there_is_something_to_agree_on(program):
    code = BY_NVML + "print(compute_capabilities())"
    (one,) = program.output(code, devices=3, visible="2,0", order="PCI_BUS_ID")
    assert one == "((8, 0), (7, 0))"
    (instance,) = program.output(code, devices=3, visible=INSTANCE, mig={INSTANCE: 1})
    assert instance == "((7, 5),)"


def test_instance_of_the_old_form(program, driver_stubs):
    code = BY_NVML + "print(compute_capabilities())"
    instance = f"MIG-{driver_stubs.devices[1].uuid}/1/0"
    assert program.output(code, devices=3, visible=instance) == ["((7, 5),)"]


@pytest.mark.parametrize(
    ("listed", "capability", "expected"),
    [
        # By default the fastest is the first, and NVML does not say which that is.
        ("0", ["7.0", "9.0"], "((7, 0), (9, 0))"),
        ("0", ["9.0", "9.0"], "((9, 0),)"),
        ("", ["7.0", "9.0"], "()"),
        ("5", ["7.0", "9.0"], "()"),
        ("GPU-c1", ["7.0", "9.0"], "((9, 0),)"),
    ],
)
def test_numbers_of_an_order_that_nobody_knows(program, listed, capability, expected):
    code = BY_NVML + "print(compute_capabilities())"
    assert program.output(code, visible=listed, capability=capability) == [expected]


def test_only_one_device_has_a_number_whatever_the_order(program):
    code = BY_NVML + "print(compute_capabilities())"
    assert program.output(code, devices=1, visible="0", capability="12.1") == ["((12, 1),)"]


@pytest.mark.parametrize("rc", [{"nvmlInit": 9}, {"nvmlDeviceGetCudaComputeCapability": 3}])
def test_nvml_that_does_not_tell(program, rc):
    assert program.output(BY_NVML + "print(compute_capabilities())", rc=rc) == ["()"]


def test_no_nvml(program):
    code = BY_NVML + "sys.modules['pynvml'] = None\nprint(compute_capabilities())"
    assert program.output(code, stubs=False) == ["()"]


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


def test_driver_that_nobody_has_initialized(program):
    code = (
        "from cudaguard.system.driver import Driver\ncu = driver()\nprint(Driver().capabilities())"
    )
    assert program.output(code) == ["()"]
