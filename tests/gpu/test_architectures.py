"""Compilers and the GPU of this machine: what is said of them is what torch really does."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.gpu

# A kernel of each kind that is compiled at run time.
KERNELS = """
import torch


@torch.jit.script
def scripted(a, b):
    return (a * b + a).relu() * b - a


x = torch.arange(1.0, 9.0, device="cuda")


def fused():
    for _ in range(4):
        y = scripted(x, x)
    assert torch.equal(y, (x * x + x).relu() * x - x)
    return "TensorExprGroup" in str(torch.jit.last_executed_optimized_graph())


def jiterated():
    kernel = torch.cuda.jiterator._create_jit_fn(
        "template <typename T> T f(T x) { return x * x + 1; }")
    assert torch.equal(kernel(x), x * x + 1)
    return torch.prod(x).item()
"""


def test_a_gpu_that_is_known_to_all_is_not_spoken_of(program):
    ran = program.run(
        "cudaguard.install()\n"
        + KERNELS
        + "print(fused(), jiterated())\nprint(*ids())\n"
        + "print([line for line in cudaguard.status().changes if 'CG033' in line])"
    )
    kernels, found, touched = ran.out
    assert kernels == "True 40320.0"
    assert not {"CG893", "CG894"} & set(found.split())
    assert touched == "[]"
    assert not {"CG893", "CG894"} & set(ran.warned)


def test_verdict_is_what_torch_does(program):
    """Whatever this GPU is: nothing is found if and only if the kernels run."""
    ran = program.run(
        "cudaguard.install()\n"
        + KERNELS
        + """
from cudaguard.features.gpu_architectures.detector import look_at_torch
from cudaguard.features.gpu_architectures.repair import copy_for
from cudaguard.system.torch_build import folder_of
nvrtc = copy_for(folder_of("torch"))
try:
    jiterated()
    works = True
except RuntimeError:
    works = False
print(works, not [f for f in look_at_torch() if f.severity != "info"])
import ctypes
library = ctypes.CDLL(nvrtc.path)
major, minor = ctypes.c_int(), ctypes.c_int()
assert library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) == 0
print((major.value, minor.value) == nvrtc.release)
"""
    )
    works, verdict = ran.out[0].split()
    assert works == verdict
    assert ran.out[1] == "True"


def test_capabilities_by_nvml_driver_and_torch(program):
    ran = program.run(
        """
        from cudaguard.system.machine import compute_capabilities
        from cudaguard.system.driver import Driver
        by_nvml = compute_capabilities()
        import torch
        torch.cuda.init()
        by_torch = [torch.cuda.get_device_capability(d) for d in range(torch.cuda.device_count())]
        print(set(by_torch) <= set(by_nvml), list(Driver().capabilities()) == by_torch)
        """
    )
    assert ran.out == ["True True"]
