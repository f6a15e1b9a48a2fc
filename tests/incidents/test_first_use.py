"""numba-cuda and cuda.core initialize CUDA when they are first used, not when they are imported.

What is done while a watched module is imported is attributed to it, with the user's line; what is
done between two imports is seen at the next one, and nobody is blamed for it.
"""

from __future__ import annotations

from collections import Counter

import pytest

from ..processes import where

pytestmark = pytest.mark.incidents

NUMBA = """
import numpy as np
from numba import cuda

print(cuda.to_device(np.arange(3)).copy_to_host().tolist())
"""
CUDA_CORE = """
from cuda.core import Device

device = Device(0)
device.set_current()
print(device.name, device.allocate(8, stream=device.default_stream).size)
"""
USERS = {"numba": (NUMBA, "[0, 1, 2]"), "cuda.core": (CUDA_CORE, "Stub GPU B 8")}
GUARD = "import cudaguard\ncudaguard.install({mode!r})\n"
# All that the guard may ask the driver beyond what the program does.
LOOKS = {"cuDeviceGetCount", "cuDevicePrimaryCtxGetState", "cuCtxGetCurrent", "cuCtxGetDevice"}
FOUND = """
for finding in cudaguard.status().findings:
    print(finding.id, finding.severity, finding.what)
"""


@pytest.mark.parametrize("mode", ["fix", "strict"])
@pytest.mark.parametrize("user", USERS)
def test_program_is_as_it_is_without_the_guard(run_cuda, user, mode):
    code, line = USERS[user]
    plain = run_cuda(code)
    ran = run_cuda(GUARD.format(mode=mode) + code)
    assert (plain.out, plain.err, plain.status) == ([line], "", 0)
    assert (ran.out, ran.err, ran.status) == ([line], "", 0)
    done, watched = (Counter(call.name for call in each.calls) for each in (plain, ran))
    assert done - watched == Counter()
    assert set(watched - done) <= LOOKS


@pytest.mark.parametrize("user", USERS)
def test_first_use_in_a_module_is_the_modules(run_cuda, child, user):
    code, line = USERS[user]
    child.write("kernels.py", code)
    program = GUARD.format(mode="fix") + "import ctypes\nimport kernels  # here\n" + FOUND
    ran = run_cuda(program, env={"CUDAGUARD_WATCH": "all"})
    place = where(child.folder / "main.py", "here")
    assert (ran.out[0], ran.err) == (line, "")
    assert ran.out[1:] == [
        f"CG814 info kernels initialized CUDA at {place} while it was imported.",
        f"CG815 info kernels created a context on device 0 at {place} while it was imported.",
    ]


@pytest.mark.parametrize("user", USERS)
def test_first_use_by_the_program_itself_is_blamed_on_nobody(run_cuda, user):
    code, line = USERS[user]
    ran = run_cuda(GUARD.format(mode="fix") + code + "import pycuda.driver\n" + FOUND)
    assert (ran.out[0], ran.err) == (line, "")
    actor, when = "Code that cudaguard did not watch", "since cudaguard last looked"
    assert ran.out[1:] == [
        f"CG814 info {actor} initialized CUDA {when}.",
        f"CG815 info {actor} created a context on device 0 {when}.",
    ]
