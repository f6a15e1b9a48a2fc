"""Compute capabilities of the visible devices, by NVML: as the driver has them once it is asked."""

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
INSTANCE = "MIG-12345678-9abc-def0-1234-56789abcdef0"
WHOLE = "c1b25c6f-1e42-4a1b-8d22-000000000bb1"  # no part, and not a name of one
# Values of CUDA_VISIBLE_DEVICES, with devices numbered as they lie on the bus.
LISTED = [
    "", "-1", "7", "0", "1,0", " 1 , 0", "1,7,0", "1,-1,0", "1,x", "x", "1x,0", "0,1,0", ",0",
    "GPU-c1,GPU-c0a1", "GPU-c1,GPU-c", "GPU-c1,0", "0,GPU-c1", "GPU-c0,GPU-c0a", "GPU-e", "GPU-",
    INSTANCE, f"{INSTANCE},{INSTANCE}", "MIG-1", "GPU-c1,MIG-1", f"GPU-c1,{INSTANCE}",
    f"MIG-GPU-{WHOLE}", f"MIG-{WHOLE}",
]  # fmt: skip


def test_the_driver_agrees(program):
    code = f"""
def compare(listed):
    os.environ["CUDA_VISIBLE_DEVICES"] = listed
    print(compute_capabilities() == by_driver())
for listed in {LISTED}:
    in_child(lambda: compare(listed))
"""
    lines = program.output(
        BY_NVML + BY_DRIVER + code, devices=3, visible="", order="PCI_BUS_ID", mig={INSTANCE: 1}
    )
    assert [listed for listed, line in zip(LISTED, lines) if line != "True"] == []
    assert len(lines) == len(LISTED)


def test_there_is_something_to_agree_on(program):
    code = BY_NVML + "print(compute_capabilities())"
    (one,) = program.output(code, devices=3, visible="2,0", order="PCI_BUS_ID")
    assert one == "((8, 0), (7, 0))"
    (instance,) = program.output(code, devices=3, visible=INSTANCE, mig={INSTANCE: 1})
    assert instance == "((7, 5),)"


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
