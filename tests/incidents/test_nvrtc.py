"""Real NVRTC on architectures that they know or not, and beside a CUDA build of torch.

There is no GPU: NVML is the stub, and torch is asked by its own function what it would compile for,
with device properties made up. What it then gets is compiled for real.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from cudaguard.features.gpu_architectures.policy import TARGETS

from .cuda_torch import cuda_torch as cuda_torch
from .marks import ON_LINUX

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = ON_LINUX

NVRTC = {
    (11, 8): "nvidia-cuda-nvrtc-cu11==11.8.89",
    (12, 4): "nvidia-cuda-nvrtc-cu12==12.4.127",
    (12, 8): "nvidia-cuda-nvrtc-cu12==12.8.93",
    (12, 9): "nvidia-cuda-nvrtc-cu12==12.9.86",
    (13, 0): "nvidia-cuda-nvrtc==13.0.88",
    (13, 5): "nvidia-cuda-nvrtc==13.5.37",
}

COMPILE = '''
import ctypes


def compiled(nvrtc, architecture):
    """Status and log of a kernel compiled for one architecture."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    source = b"__global__ void f(int *place) { *place = 1; }"
    assert not nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), source, b"f.cu", 0, None, None)
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture={architecture}".encode())
    status = nvrtc.nvrtcCompileProgram(program, 1, options)
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    return status, log.value.decode().strip()
'''
REFUSED = (5, "nvrtc: error: invalid value for --gpu-architecture (-arch)")

# What torch asks for, by the function that its fusers call. cudaDeviceProp of CUDA 12 and 13 has
# the capability in the same place.
TORCH_ASKS = """
import os
import torch


def asked_for(major, minor):
    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    torch_cuda = ctypes.CDLL(os.path.join(folder, "libtorch_cuda.so"))
    query = torch_cuda[
        "_ZN5torch3jit5fuser4cuda18codegenOutputQueryEPK14cudaDevicePropRiS6_Rb"]
    properties = (ctypes.c_int * 1024)()
    properties[90], properties[91] = major, minor
    a, b, machine_code = ctypes.c_int(), ctypes.c_int(), ctypes.c_bool()
    query(properties, ctypes.byref(a), ctypes.byref(b), ctypes.byref(machine_code))
    return f"{'sm' if machine_code.value else 'compute'}_{a.value}{b.value}"
"""

GUARD = """
import sys
import cudaguard
import cudaguard.system
import cudaguard.system.preload as preload
import cudaguard.features.gpu_architectures.repair as nvrtc_probe
# There is no driver; its place is taken by the stub of NVML, which says what devices there are. A
# stub of libcuda would be opened by NVRTC itself, and not be enough for it.
preload.DRIVER, cudaguard.system.DRIVER_FILES = "libnvidia-ml.so.1", (__file__,)
nvrtc_probe._TOOLKITS = ()  # nothing of this machine's own
"""


@pytest.fixture(scope="session")
def wheel(kept) -> Callable[[str], Path]:
    """Returns a folder with one distribution."""
    return kept.packages


@pytest.fixture(scope="session")
def nvrtc(wheel) -> Callable[[tuple[int, int]], Path]:
    """Returns the library of a release."""

    def get(release: tuple[int, int]) -> Path:
        (path,) = wheel(NVRTC[release]).glob("nvidia/*/lib/libnvrtc.so.*")
        return path

    return get


@pytest.mark.parametrize("release", NVRTC)
def test_what_a_release_knows(child, nvrtc, release):
    """The table, and what the files say, against what the library answers."""
    done = child.python(
        """
        import ctypes, sys
        from cudaguard.features.gpu_architectures.repair import _copy, mapped_copies
        before = _copy(sys.argv[1])
        assert mapped_copies() == []
        library = ctypes.CDLL(sys.argv[1])
        assert mapped_copies() == [before]
        major, minor, number = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        assert library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) == 0
        assert library.nvrtcGetNumSupportedArchs(ctypes.byref(number)) == 0
        known = (ctypes.c_int * number.value)()
        assert library.nvrtcGetSupportedArchs(known) == 0
        assert before.release == (major.value, minor.value)
        print(before.name)
        print(*known)
        """,
        nvrtc(release),
    )
    name, known = done.stdout.splitlines()
    assert name == f"libnvrtc.so.{'11.2' if release[0] == 11 else release[0]}"
    assert {int(word) for word in known.split()} == TARGETS[release]


@pytest.mark.parametrize(("first", "accepted"), [((12, 9), True), ((12, 8), False)])
def test_the_first_one_in_the_process_serves_who_asks_by_name(child, nvrtc, first, accepted):
    done = child.python(
        COMPILE + "import sys\nfor path in sys.argv[1:]: ctypes.CDLL(path)\n"
        "print(compiled(ctypes.CDLL('libnvrtc.so.12'), 'sm_121'))",
        *(nvrtc(release) for release in (first, (12, 8), (12, 9))),
    )  # fmt: skip
    assert done.stdout.strip() == str((0, "") if accepted else REFUSED)


@pytest.fixture
def with_torch(child, root, cuda_torch, driver_stubs):
    """Runs code with the CUDA build of torch, and the stub of NVML for devices of one kind."""
    child.write("lib/none", "")
    shutil.copy(driver_stubs.folder / "libnvidia-ml.so.1", child.folder / "lib")

    def run(code, *arguments, capability, path="", more=()):
        folders = (str(root), str(child.folder), path)
        child.write("main.py", code)
        env = {
            **driver_stubs.environment(1, capability=capability),
            "LD_LIBRARY_PATH": ":".join([str(child.folder / "lib"), *map(str, more)]),
            "PYTHONPATH": ":".join(filter(None, folders)),
        }
        return child.command(cuda_torch, "main.py", *arguments, env=env, timeout=600)

    return run


JIT = COMPILE + "GUARD" + TORCH_ASKS + (
    "wanted = asked_for(10, 7)\n"
    "print(wanted, *compiled(ctypes.CDLL('libnvrtc.so.13'), wanted))\n"
)  # fmt: skip


def test_torch_is_served_by_the_one_that_knows_the_gpu(with_torch, wheel):
    newer = wheel(NVRTC[13, 5])
    appended = f"import sys; sys.path.append({str(newer)!r})\n"
    unguarded = with_torch(appended + JIT.replace("GUARD", ""), capability="10.7")
    assert unguarded.stdout.strip() == f"sm_107 {REFUSED[0]} {REFUSED[1]}"
    guarded = with_torch(
        appended
        + JIT.replace("GUARD", GUARD + "cudaguard.install()\n")
        + "status = cudaguard.status()\n"
        "print([line for line in status.changes if 'CG033' in line])\n"
        "print([f.id for f in status.findings if f.severity != 'info'])",
        capability="10.7",
    )
    asked, touched, findings = guarded.stdout.splitlines()
    assert asked.strip() == "sm_107 0"
    assert f"{newer}/nvidia/cu13/lib/libnvrtc.so.13: loaded before torch, because NVRTC" in touched
    assert findings == "[]"
    assert guarded.stderr == ""


def test_torch_is_left_alone_where_its_own_knows_the_gpu(with_torch, wheel):
    newer = wheel(NVRTC[13, 5])
    done = with_torch(
        GUARD + f"sys.path.append({str(newer)!r})\ncudaguard.install()\nimport torch\n"
        "print([line.split()[-1] for line in open('/proc/self/maps') if 'libnvrtc' in line])\n"
        "print(cudaguard.status().changes)",
        capability="12.1",
    )
    mapped, touched = done.stdout.splitlines()
    assert "libnvrtc.so.13" in mapped
    assert str(newer) not in mapped
    assert "libnvrtc" not in touched


def test_what_torch_says_of_itself_is_read_from_its_files(with_torch):
    done = with_torch(
        """
        from cudaguard.features.gpu_architectures.repair import copy_for, mapped_copies
        from cudaguard.system.torch_build import architectures, build_of, folder_of
        folder = folder_of("torch")
        before = copy_for(folder), architectures(folder), build_of(folder)["__version__"]
        assert mapped_copies() == []
        import sys
        assert "torch" not in sys.modules
        import torch
        assert before[0].path == mapped_copies()[0].path, (before, mapped_copies())
        assert before[0].release == (13, 0)
        assert before[1] == tuple(torch._C._cuda_getArchFlags().split())
        assert before[2] == torch.__version__
        """,
        capability="9.0",
    )
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("capability", "id", "words"),
    [
        ("10.7", "CG894", "NVRTC 13.0 does not support sm_107"),
        ("7.0", "CG893", "has no code for device 0 (compute capability 7.0)."),
        ("9.0", None, ""),
    ],
)
def test_it_is_told_when_torch_initializes_cuda(with_torch, driver_stubs, capability, id, words):
    """torch itself cannot use the stub driver: what stands in its list is called in its place."""
    done = with_torch(
        "import ctypes, cudaguard\ncudaguard.install()\nimport torch\n"
        "assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0\n"
        "ours = [call for call, _ in torch.cuda._queued_calls if 'cudaguard' in call.__module__]\n"
        "print(len(ours))\nours[0]()\n"
        "print(*(f.id for f in cudaguard.status().findings if f.severity != 'info'))",
        capability=capability,
        more=(driver_stubs.folder,),
    )
    assert done.stdout.splitlines() == ["1", id or ""]
    assert (words in done.stderr) if id else done.stderr == ""
