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
    """Whatever this GPU is: ``fine`` if and only if the kernels run."""
    ran = program.run(
        "cudaguard.install()\n"
        + KERNELS
        + """
from cudaguard.system.driver import Driver
from cudaguard.features.gpu_architectures.checks import look_at_torch
situation = look_at_torch(Driver().capabilities())
try:
    jiterated()
    works = True
except RuntimeError:
    works = False
print(works, 0 in situation.with_verdict("fine"), situation.nvrtc.release)
nvrtc = __import__("ctypes").CDLL(situation.nvrtc.path)
import ctypes
major, minor = ctypes.c_int(), ctypes.c_int()
assert nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) == 0
print((major.value, minor.value) == situation.nvrtc.release)
"""
    )
    works, verdict, *_ = ran.out[0].split(" ", 2)
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
        print(sorted(by_nvml) == sorted(by_torch), list(Driver().capabilities()) == by_torch)
        """
    )
    assert ran.out == ["True True"]
