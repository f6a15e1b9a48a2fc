"""Contexts beside a real torch: made in advance and joined, made by torch, or somebody's own."""

from __future__ import annotations

import pytest

from ..features.cuda_init.program import OWN

pytestmark = pytest.mark.gpu

SEEN = "import ctypes\nfrom cudaguard.system.driver import Driver\nseen = Driver()\n"


@pytest.fixture
def run(program):
    """Runs code behind `SEEN`."""
    return lambda code: program.run(SEEN + code)


@pytest.mark.parametrize("guarded", [True, False])
def test_torch_joins_the_context_that_was_made_in_advance(program, guarded):
    ran = program.run(
        ("cudaguard.install()\n" if guarded else "")
        + SEEN
        + """
before = used()
handle = cudaguard.create_context()
after = used()
print(seen.state().active, current(), after > before)
import torch
print(seen.state().active, current(), used() - after < after - before)
print(torch.ones(4, device="cuda").sum().item())
# A second context would take as much again.
print(current() == primary(), seen.has_other_context(), used() - after < after - before)
print(seen.state().active, found("CG816", "CG817"), cudaguard.create_context() is handle)
"""
    )
    assert ran.warned == []
    assert ran.out == ["(0,) None True", "(0,) None True", "4.0", "True False True", "(0,) [] True"]


def test_our_reference_is_one_of_several(run):
    """Who releases it all the same takes nothing from torch."""
    ran = run("""
cudaguard.create_context()
import torch
x = torch.ones(4, device="cuda")
print(driver().cuDevicePrimaryCtxRelease_v2(0), seen.state().active)
print((x + torch.ones(4, device="cuda")).sum().item())
""")
    assert ran.out == ["0 (0,)", "8.0"]


@pytest.mark.parametrize("rank", ["0", "1", "7"])
def test_the_only_visible_device_is_the_rank_s_for_torch_too(program, rank):
    ran = program.run(
        """
        import ctypes
        cudaguard.install()
        print(cudaguard.create_context().device.ordinal)
        import torch
        print(torch.cuda.device_count(), torch.ones(1, device="cuda").device.index)
        print([f.severity for f in found("CG815")])
        """,
        devices=1,
        env={"LOCAL_RANK": rank},
    )
    assert (ran.out, ran.warned) == (["0", "1 0", "['info']"], [])


def test_one_device_has_one_uuid_and_one_address_for_torch_cuda_and_nvml(program):
    ran = program.run(
        """
        import pynvml
        import torch
        device = cudaguard.create_context(0).device
        print(device.uuid)
        print("GPU-" + str(torch.cuda.get_device_properties(0).uuid).lower().replace("gpu-", ""))
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(device.uuid.encode())
        text = lambda value: value.decode() if isinstance(value, bytes) else value
        print(text(pynvml.nvmlDeviceGetUUID(handle)))
        print(device.pci_bus_id)
        address = text(pynvml.nvmlDeviceGetPciInfo(handle).busId).lower()
        domain, _, rest = address.partition(":")
        print(f"{int(domain, 16):04x}:{rest}")
        """
    )
    uuid, torchs, nvmls, bus, nvmls_bus = ran.out
    assert uuid == program.gpu.uuid
    assert (torchs, nvmls) == (uuid, uuid)
    assert bus == nvmls_bus


def test_module_that_uses_torch_while_it_is_imported_is_named(program):
    program.module("kaolin", "import torch", "x = torch.ones(1, device='cuda')")
    ran = program.run(
        """
        cudaguard.install()
        import torch
        print(asked(), found("CG814", "CG815"))
        import kaolin  # here
        for finding in found("CG814", "CG815"): print(finding.id, finding.severity, finding.what)
        """
    )
    where = program.where("here")
    assert ran.warned == []
    assert ran.out == [
        "3 []",
        f"CG814 info kaolin initialized CUDA at {where} while it was imported.",
        f"CG815 info kaolin created a context on device 0 at {where} while it was imported.",
    ]


def test_own_context_beside_torch_is_warned_of(run, program):
    program.module("warp", OWN.format(0))
    ran = run("""
cudaguard.install()
import torch
import warp  # here
print(seen.has_other_context(), current() != primary())
print([f.id for f in found("CG814", "CG815", "CG816")])
""")
    assert ran.out[0] == "True True"
    assert ran.out[1] == "['CG814', 'CG816']"
    assert ran.warned == ["CG816"]
    assert f"on device 0 at {program.where('here')}, beside torch." in ran.err


def test_context_of_torch_is_not_foreign(run, program):
    program.module("kaolin", "import torch", "x = torch.ones(1, device='cuda')")
    ran = run("""
cudaguard.install()
import torch
import kaolin
print(seen.state().current, seen.has_other_context(), found("CG816"))
""")
    assert (ran.out, ran.warned) == (["0 False []"], [])
