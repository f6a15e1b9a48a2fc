"""Variables that come too late for a real torch, and that they do come too late."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("start", ["torch.cuda.init()", "torch.cuda.is_available()"])
def test_devices_that_are_hidden_after_torch_has_initialized_cuda(program, start):
    ran = program.run(
        f"""
        import ctypes
        cudaguard.install()
        import torch
        {start}
        count = ctypes.c_int()
        def devices():
            assert driver().cuDeviceGetCount(ctypes.byref(count)) == 0
            return count.value
        before = devices()
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # late
        print(devices() == before, torch.ones(2, device="cuda").sum().item())
        """
    )
    assert ran.out == ["True 2.0"]
    assert ran.warned == ["CG819"]
    assert f"probably changed at {program.where('late')}" in ran.err


def test_devices_that_are_hidden_in_time(program):
    ran = program.run(
        """
        import ctypes
        cudaguard.install()
        import torch
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        print(torch.cuda.is_available(), torch.cuda.device_count())
        """
    )
    assert (ran.out, ran.warned) == (["False 0"], [])


def test_allocator_that_is_configured_before_it_is_used(program):
    ran = program.run(
        """
        cudaguard.install()
        import torch
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        import torch.nn.functional, torch._inductor.config
        torch.ones(2, device="cuda")
        print(torch.cuda.memory._snapshot()["allocator_settings"]["expandable_segments"])
        """
    )
    assert (ran.out, ran.warned) == (["True"], [])


def test_allocator_that_is_chosen_after_the_import_of_torch(program):
    ran = program.run(
        """
        cudaguard.install()
        import torch
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"  # late
        print(torch.cuda.get_allocator_backend())
        attempt(lambda: torch.ones(2, device="cuda").sum().item())
        """
    )
    assert ran.out[0] == "native"
    assert ran.out[1] == "ok 2.0" or "Allocator backend parsed at runtime !=" in ran.out[1]
    assert ran.warned == ["CG819"]
    assert f"probably changed at {program.where('late')}" in ran.err


def test_allocator_that_is_chosen_in_time(program):
    ran = program.run(
        """
        cudaguard.install()
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"
        import torch
        print(torch.cuda.get_allocator_backend(), torch.ones(2, device="cuda").sum().item())
        """
    )
    assert (ran.out, ran.warned) == (["cudaMallocAsync 2.0"], [])
