"""pycuda.autoinit beside torch, and beside a library that works in the primary context.

The packages are the real ones; torch is without CUDA, so cuda.core stands for those that use the
primary context.
"""

from __future__ import annotations

import pytest

from ..processes import where

pytestmark = pytest.mark.incidents

# The stream is PyCUDA's; what is current afterwards is the primary context, as it is for torch.
USE = """
import pycuda.driver as drv
from cuda.core import Device

print(pycuda.autoinit.__name__, pycuda.autoinit.device == drv.Device(0))
stream = drv.Stream()
Device(0).set_current()
event = drv.Event()
try:
    event.record(stream)
    print("recorded")
except drv.Error as error:
    print(error)
"""
# By ctypes, so that nobody else's opinion is asked.
CURRENT = """
import ctypes

cu, mine, shared = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
assert cu.cuCtxGetCurrent(ctypes.byref(mine)) == 0
assert cu.cuDevicePrimaryCtxRetain(ctypes.byref(shared), 0) == 0
assert cu.cuDevicePrimaryCtxRelease_v2(0) == 0
print("primary" if mine.value == shared.value else "own")
"""
GUARD = "import cudaguard\ncudaguard.install({mode!r}, enable={enable!r})\n"
FOUND = """
print(*(f"{f.id} {f.severity}" for f in cudaguard.status().findings), sep=", ")
"""


def guarded(code, mode="fix", enable=()):
    return GUARD.format(mode=mode, enable=enable) + code + FOUND


FIRST = "import torch\nimport pycuda.autoinit  # here\n"


def test_streams_of_one_are_invalid_in_the_other_without_the_guard(run_cuda):
    ran = run_cuda(FIRST + CURRENT + USE)
    assert ran.out[:2] == ["own", "pycuda.autoinit True"]
    assert ran.out[2] == "cuEventRecord failed: invalid resource handle"


@pytest.mark.parametrize("mode", ["warn", "fix"])
def test_the_line_that_made_the_context_is_told(run_cuda, child, mode):
    ran = run_cuda(guarded(FIRST + CURRENT, mode))
    place = where(child.folder / "main.py", "here")
    assert ran.out == ["own", "CG814 info, CG816 warning"]
    (warning,) = ran.warnings
    assert warning == (
        f"{place}: ContextWarning: [CG816] pycuda.autoinit made its own CUDA context current on "
        f"device 0 at {place}, beside torch."
    )
    assert ran.status == 0


def test_it_is_told_when_torch_comes_later(run_cuda, child):
    ran = run_cuda(guarded("import pycuda.autoinit  # here\nprint()\nimport torch  # torch\n"))
    path = child.folder / "main.py"
    assert ran.out == ["", "CG814 info, CG816 info, CG816 warning"]
    (warning,) = ran.warnings
    assert warning.startswith(f"{where(path, 'torch')}: ContextWarning: [CG816] pycuda.autoinit ")
    assert f"at {where(path, 'here')}, beside torch." in warning


def test_nothing_is_said_without_torch(run_cuda):
    ran = run_cuda(guarded("import pycuda.autoinit\n"))
    assert (ran.out, ran.err) == (["CG814 info, CG816 info"], "")


@pytest.mark.parametrize("mode", ["fix", "strict"])
def test_the_rule_gives_the_primary_context_instead(run_cuda, mode):
    ran = run_cuda(guarded(FIRST + CURRENT + USE, mode, enable=("CG013",)))
    assert ran.out[:3] == ["primary", "pycuda.autoprimaryctx True", "recorded"]
    assert "CG816" not in ran.out[3]
    assert ran.warnings == []
    assert not ran.called("cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxCreate_v4")
    # PyCUDA 2026.1 complains of its own primary context when the process ends, guarded or not.
    raw = run_cuda(FIRST.replace("autoinit", "autoprimaryctx"))
    assert (ran.status, ran.err) == (raw.status, raw.err)


def test_substituted_context_can_be_worked_in(run_cuda):
    code = """
import numpy as np
import pycuda.gpuarray as ga

print(ga.to_gpu(np.arange(4)).get().tolist())
pycuda.autoinit.context.synchronize()
"""
    ran = run_cuda(guarded(FIRST + code, enable=("CG013",)))
    assert ran.out[0] == "[0, 1, 2, 3]"
    assert ran.called("cuCtxSynchronize")
