"""Real CuPy and numba-cuda with compilers that do not know a GPU: they fail, and it is told before.

The GPU is that of the stub driver. CuPy's runtime does not take that for a driver: its functions
are called for devices made up, and what they ask NVRTC for is compiled for real. numba-cuda takes
it, and goes as far as its compilers.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.incidents,
    pytest.mark.skipif(
        (platform.system(), platform.machine()) != ("Linux", "x86_64"),
        reason="the pinned wheels are those for x86-64 Linux",
    ),
]

NVRTC_12_4, NVRTC_12_9 = (f"nvidia-cuda-nvrtc-cu12=={v}" for v in ("12.4.127", "12.9.86"))
OF_CUPY = ("cupy-cuda12x==14.2.0", "cuda-pathfinder==1.9.0", "numpy==2.4.6")
OF_NUMBA = (
    "numba-cuda==0.30.4", "numba==0.68.1", "numpy==2.4.6", "cuda-bindings==12.9.10",
    "cuda-core==1.2.2", "packaging", NVRTC_12_4, "nvidia-nvjitlink-cu12==12.4.127",
)  # fmt: skip
GUARD = "import cudaguard\ncudaguard.install()\n"
SAID = "\nprint('said', *(f.id for f in cudaguard.status().findings if f.severity == 'warning'))"


@pytest.fixture
def run(child, root, cached_environment, driver_stubs) -> Callable[..., Any]:
    """Runs code in an environment with the stub driver, for devices of one kind."""

    def run(pins, code, capability, check=True, **env):
        variables = {
            **driver_stubs.environment(1, capability=capability),
            "PYTHONPATH": str(root),
            "HOME": str(child.folder),
            "CUPY_CACHE_DIR": str(child.folder / "cache"),
            **env,
        }
        child.write("main.py", code)
        python = cached_environment(*pins)
        return child.command(python, "main.py", env=variables, check=check, timeout=300)

    return run


# What CuPy asks its NVRTC for, on a device of some kind, and what comes of it.
CUPY = """
import sys
import cupy
from cupy.cuda import compiler
from cupy.cuda.device import Device
from unittest import mock

def asked(capability):
    # Without the caches that are kept for each device, of which CUDA's runtime would be asked.
    device = mock.Mock(compute_capability=capability)
    with mock.patch.object(compiler.device, "Device", lambda: device):
        arch = compiler._get_arch.__wrapped__()
    return compiler._get_arch_for_options_for_nvrtc.__wrapped__(arch)

def compiled(capability):
    option, kind = asked(capability)
    program = compiler._NVRTCProgram("__global__ void f() {}", "f.cu", method=kind)
    try:
        code, _ = program.compile((option,))
        return option, kind, code[:4] == b"\\x7fELF"
    except compiler.CompileException as error:
        return option, str(error).strip()
"""


@pytest.mark.parametrize("nvrtc", [NVRTC_12_4, NVRTC_12_9])
def test_what_cupy_asks_for(run, nvrtc):
    from cudaguard.features.gpu_architectures.policy.kernel_compilers import cupy_asks

    release = (12, 4) if nvrtc == NVRTC_12_4 else (12, 9)
    devices = [(5, 0), (7, 0), (8, 7), (8, 9), (9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1)]
    code = CUPY + f"for c in {devices}: print(asked(f'{{c[0]}}{{c[1]}}')[0])\n"
    done = run((*OF_CUPY, nvrtc), code, "9.0")
    expected = [f"-arch=sm_{cupy_asks(device, release, (14, 2))}" for device in devices]
    assert done.stdout.split() == expected


def test_cupy_makes_code_for_another_gpu_or_is_refused(run):
    code = CUPY + "for c in '90', '120', '103', '35': print(*compiled(c))"
    done = run((*OF_CUPY, NVRTC_12_4), code, "9.0")
    refused = "nvrtc: error: invalid value for --gpu-architecture (-arch)"
    assert done.stdout.splitlines() == [
        "-arch=sm_90 cubin True",
        "-arch=sm_90 cubin True",  # which no GPU of 12.0 runs
        "-arch=sm_90 cubin True",
        f"-arch=sm_35 {refused}",
    ]
    done = run((*OF_CUPY, NVRTC_12_9), CUPY + "print(*compiled('110'))", "9.0")
    assert done.stdout.strip() == f"-arch=sm_110 {refused}"
    code = CUPY + "print(*compiled('120'))"
    done = run((*OF_CUPY, NVRTC_12_4), code, "9.0", CUPY_COMPILE_WITH_PTX="1")
    assert done.stdout.strip() == "-arch=compute_90 ptx False"


@pytest.mark.parametrize(
    ("nvrtc", "capability", "words"),
    [
        (NVRTC_12_4, "12.0", "CuPy with NVRTC 12.4 compiles for sm_90, not"),
        (NVRTC_12_4, "3.5", "its NVRTC 12.4 does not support sm_35."),
        (NVRTC_12_9, "11.0", "its NVRTC 12.9 does not support sm_110."),
        (NVRTC_12_4, "9.0", ""),
        (NVRTC_12_9, "12.1", ""),
    ],
)
def test_cupy_is_told_of_when_it_loads_nvrtc(run, child, nvrtc, capability, words):
    code = (
        GUARD + CUPY + "import ctypes\nassert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0\n"
        "assert compiler._get_nvrtc_version()[0] == 12  # here" + SAID
    )
    done = run((*OF_CUPY, nvrtc), code, capability)
    assert done.stdout.strip() == ("said CG897" if words else "said")
    assert words in done.stderr
    line = 1 + code[: code.index("# here")].count("\n")
    assert (f"{child.folder}/main.py:{line}" in done.stderr) == bool(words)


NUMBA = """
from numba import cuda

@cuda.jit
def kernel(array):
    array[0] = 1

try:
    kernel.compile((cuda.types.float32[::1],))
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("capability", "error", "words"),
    [
        ("12.0", "Can't use arch-specific compute_120a", "its NVRTC 12.4 does not support sm_120."),
        ("3.5", "GPU compute capability 3.5 is not", "its NVRTC 12.4 does not support sm_35."),
        ("9.0", "", ""),
    ],
)
def test_numba_cannot_compile_and_is_told_of(run, capability, error, words):
    plain = run(OF_NUMBA, NUMBA, capability)
    assert error in plain.stdout
    done = run(OF_NUMBA, GUARD + NUMBA + SAID, capability)
    assert error in done.stdout
    assert done.stdout.splitlines()[-1] == ("said CG898" if words else "said")
    assert words in done.stderr


LINK = """
from numba.cuda.cudadrv import driver
PTX = b"//\\n.version 8.4\\n.target sm_90\\n.address_size 64\\n.visible .entry f() { ret; }\\n"
import ctypes
assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
from numba import cuda
linker = driver._Linker(cc=(12, 0, "a"))
linker.add_ptx(PTX, "f")
assert driver._have_nvjitlink()
try:
    linker.complete()
except Exception as error:
    print(type(error).__name__, error)
"""


def test_nvjitlink_refuses_and_is_told_of(run):
    plain = run(OF_NUMBA, LINK, "12.0")
    assert "Value 'sm_120a' is not defined for option 'gpu-name'" in plain.stdout
    code = GUARD + LINK + "print('known', cudaguard.explain(error_text).id)" + SAID
    code = code.replace("    print(type", "    error_text = str(error)\n    print(type")
    done = run(OF_NUMBA, code, "12.0")
    assert done.stdout.splitlines()[-2:] == ["known CG898", "said CG898"]
    assert "its nvJitLink 12.4 does not support sm_120." in done.stderr
