"""Programs with a real torch on a real GPU; without one of the two a test is skipped."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from ..conftest import ROOT
from ..features.cuda_init.conftest import gpus as gpus
from ..features.cuda_init.program import SCENE, Ran, RealGPUs, RealProgram
from ..processes import Child

# What programs of this folder can use besides. torch is not imported by it.
WITH_TORCH = '''

UUID = {uuid!r}


def used():
    """Bytes of memory in use on the device, by whomever: NVML may not know who is who."""
    import pynvml

    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID(UUID.encode())).used


def current():
    """The context that is current in this thread."""
    import ctypes

    handle = ctypes.c_void_p()
    assert driver().cuCtxGetCurrent(ctypes.byref(handle)) == 0
    return handle.value


def primary(device=0):
    """The primary context of the device; one more reference to it."""
    import ctypes

    handle = ctypes.c_void_p()
    assert driver().cuDevicePrimaryCtxRetain(ctypes.byref(handle), device) == 0
    return handle.value

'''

# Whether torch works at all, before anything is said of the guard.
LOOK_AT_TORCH = """
import torch
print(torch.__version__)
print(torch.version.cuda)
print(torch.ones(2, device="cuda").sum().item() if torch.version.cuda else "")
"""


class RealTorch(NamedTuple):
    """The torch of this interpreter."""

    version: tuple[int, ...]  # (2, 11)
    cuda: str


@pytest.fixture(scope="session")
def torch(gpus: RealGPUs) -> RealTorch:
    """What torch is there; one that is there and cannot use the GPU is an error."""
    done = Child(ROOT).python(LOOK_AT_TORCH, timeout=300, check=False)
    if "No module named 'torch'" in done.stderr:
        pytest.skip("torch is not installed")
    assert done.returncode == 0, f"torch cannot use the GPU:\n{done.stdout}\n{done.stderr}"
    version, cuda, total = done.stdout.splitlines()
    if cuda == "None":
        pytest.skip(f"torch {version} is built without CUDA")
    assert total == "2.0"
    return RealTorch(tuple(int(part) for part in version.split(".")[:2]), cuda)


class TorchProgram(RealProgram):
    """A program that uses torch; slow to start, and given the time for it."""

    def __init__(self, child: Any, gpus: RealGPUs) -> None:
        super().__init__(child, gpus)
        child.write("scene.py", SCENE + WITH_TORCH.format(uuid=gpus.devices[0].uuid))

    def run(self, code: str, *arguments: object, timeout: float = 300, **how: Any) -> Ran:
        return super().run(code, *arguments, timeout=timeout, **how)

    def journal(self) -> list[dict[str, Any]]:
        """What the processes of a program wrote that was run with CUDAGUARD_JOURNAL=journal."""
        text = (self.folder / "journal").read_text()
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def program(child: Any, gpus: RealGPUs, torch: RealTorch) -> TorchProgram:
    """A program with torch and the driver of this machine."""
    return TorchProgram(child, gpus)
