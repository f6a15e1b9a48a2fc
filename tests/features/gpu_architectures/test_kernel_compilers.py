"""CuPy and numba-cuda on GPUs that their compilers do not know: told when they load those."""

from __future__ import annotations

import pytest

from cudaguard.features.gpu_architectures.policy.architectures import (
    CANNOT_RUN,
    FINE,
    NO_JIT,
    UNKNOWN,
)
from cudaguard.features.gpu_architectures.policy.kernel_compilers import (
    cupy_asks,
    cupy_verdict,
    numba_verdict,
    parts,
    release_that_fits,
)

CUPY = (14, 2)


# --- what follows from what is there -------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "nvrtc", "cupy", "asked", "verdict"),
    [
        ((8, 9), (12, 4), CUPY, 89, FINE),
        ((9, 0), (12, 4), CUPY, 90, FINE),
        ((12, 0), (12, 4), CUPY, 90, CANNOT_RUN),  # cupy/cupy#9121
        ((12, 0), (12, 8), CUPY, 120, FINE),
        ((12, 1), (12, 8), CUPY, 120, FINE),
        ((12, 1), (12, 9), CUPY, 121, FINE),
        ((10, 3), (12, 8), CUPY, 103, NO_JIT),  # below its cap, and not known
        ((11, 0), (12, 9), CUPY, 110, NO_JIT),
        ((11, 0), (13, 0), CUPY, 110, FINE),
        ((6, 1), (13, 0), CUPY, 61, NO_JIT),  # cupy/cupy#9475
        ((6, 1), (12, 9), CUPY, 61, FINE),
        ((8, 7), (11, 4), (13, 6), 87, FINE),  # Tegra is not capped
        ((8, 9), (11, 4), (13, 6), 86, FINE),
        ((9, 0), (11, 4), (13, 6), 86, CANNOT_RUN),
        ((12, 0), (11, 8), (13, 6), 90, CANNOT_RUN),
        ((12, 1), (12, 9), (13, 6), 120, FINE),
        ((12, 0), (12, 4), (13, 0), 120, NO_JIT),  # compared as texts
        ((12, 0), (12, 8), (13, 0), 120, FINE),
        ((8, 9), (11, 4), (13, 0), 86, FINE),
        ((9, 0), (9, 9), CUPY, 90, UNKNOWN),
    ],
)
def test_cupy(device, nvrtc, cupy, asked, verdict):
    assert cupy_asks(device, nvrtc, cupy) == asked
    assert cupy_verdict(device, nvrtc, cupy, is_ptx=False) == verdict


def test_ptx_runs_on_what_comes_later():
    assert cupy_verdict((12, 0), (12, 4), CUPY, is_ptx=True) == FINE
    assert cupy_verdict((6, 1), (13, 0), CUPY, is_ptx=True) == NO_JIT
    assert cupy_verdict((12, 0), None, CUPY, is_ptx=False) == UNKNOWN
    assert cupy_verdict((12, 0), (12, 4), None, is_ptx=False) == UNKNOWN


@pytest.mark.parametrize(
    ("device", "compilers", "numba", "links", "verdict"),
    [
        ((9, 0), (12, 4), (0, 30), False, FINE),
        ((12, 0), (12, 4), (0, 30), False, NO_JIT),
        ((12, 0), (12, 4), (0, 23), False, UNKNOWN),
        ((12, 0), (12, 8), (0, 30), False, FINE),
        ((8, 8), (12, 4), (0, 30), False, FINE),  # takes 8.7
        ((8, 8), (12, 4), (0, 30), True, NO_JIT),
        ((7, 0), (13, 0), (0, 30), False, NO_JIT),
        ((7, 0), (13, 0), (0, 30), True, NO_JIT),
        ((7, 0), None, (0, 30), False, UNKNOWN),
        ((7, 0), (13, 0), None, False, UNKNOWN),
    ],
)
def test_numba(device, compilers, numba, links, verdict):
    assert numba_verdict(device, compilers, numba, links=links) == verdict


def test_releases():
    assert parts("14.2.0") == (14, 2)
    assert parts("0.30.4") == (0, 30)
    assert parts("None") is parts("14") is parts("a.b") is None
    assert release_that_fits(12, lambda release: release >= (12, 8)) == (12, 8)
    assert release_that_fits(13, lambda release: release < (13, 0)) == (12, 9)
    assert release_that_fits(13, lambda release: False) is None


# --- in a process --------------------------------------------------------------------------------

# As cuda.pathfinder does, by which both come to their compilers.
PATHFINDER = """
import ctypes, os
def load(path):
    try:
        return ctypes.CDLL(os.path.basename(path), mode=os.RTLD_NOLOAD)
    except OSError:
        return ctypes.CDLL(path, 258)
"""
CUPY_INIT = """
__version__ = "{version}"
from cupy.cuda import compiler
"""
COMPILER = """
import os
from cuda.pathfinder import load
_use_ptx = bool(os.environ.get("CUPY_COMPILE_WITH_PTX"))
def use(path):
    import ctypes
    ctypes.CDLL("libcuda.so.1").cuInit(0)
    load(path)
"""
NUMBA_CUDA = """
from cuda import bindings
from cuda.pathfinder import load
import numba_cuda
class config: FORCE_CUDA_CC = None
def use(*paths):
    import ctypes
    ctypes.CDLL("libcuda.so.1").cuInit(0)
    for path in paths:
        load(path)
"""
USE_CUPY = "import cupy\ncupy.cuda.compiler.use(sys.argv[1])  # use\nprint(*told())\n"
USE_NUMBA = "from numba import cuda\ncuda.use(*sys.argv[1:])  # use\nprint(*told())\n"
GUARD = """
cudaguard.install()
def told(): return [finding.id for finding in found("CG897", "CG898")]
"""


@pytest.fixture
def made(program):
    """The program, with a CuPy for CUDA 12, a numba-cuda and what loads their compilers."""

    def made(version="14.2.0", numba="0.30.4", cuda="12.x"):
        for name, text in {
            "cuda/pathfinder.py": PATHFINDER,
            "cuda/bindings/__init__.py": f"__version__ = '{cuda.partition('.')[0]}.9.1'",
            "cupy/__init__.py": CUPY_INIT.format(version=version),
            "cupy/cuda/__init__.py": "",
            "cupy/cuda/compiler.py": COMPILER,
            "cupy/.data/_wheel.json": f'{{"cuda": "{cuda}"}}',
            "numba/__init__.py": "",
            "numba/cuda/__init__.py": NUMBA_CUDA,
            "numba_cuda/__init__.py": f"__version__ = '{numba}'",
        }.items():
            path = program.site / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return program

    return made


def test_cupy_is_told_of_when_it_loads_its_nvrtc(made):
    program = made()
    ran = program.run(GUARD + USE_CUPY, program.nvrtc((12, 4)), capability="12.0")
    assert ran.warned == ["CG897"]
    assert program.where("use") in ran.err
    assert (
        "CuPy with NVRTC 12.4 compiles for sm_90, not for devices 0, 1 (compute capability 12.0)."
        in ran.err
    )
    assert "CUDA_ERROR_NO_BINARY_FOR_GPU" in ran.err
    assert "run: pip install 'nvidia-cuda-nvrtc-cu12==12.8.*'" in ran.err
    assert "CUPY_COMPILE_WITH_PTX=1" in ran.err


@pytest.mark.parametrize(
    ("nvrtc", "capability", "cuda", "env"),
    [
        ((12, 8), "12.0", "12.x", {}),
        ((12, 8), "12.1", "12.x", {}),  # runs code for 12.0
        ((12, 4), "9.0", "12.x", {}),
        ((12, 4), "12.0", "12.x", {"CUPY_COMPILE_WITH_PTX": "1"}),
        ((12, 4), "12.0", "13.x", {}),  # another's NVRTC, CuPy will load its own
    ],
)
def test_healthy_cupy_is_not_spoken_of(made, nvrtc, capability, cuda, env):
    program = made(cuda=cuda)
    path = program.nvrtc(nvrtc)
    env = {"PYTHONPATH": str(program.site), **env}
    ran = program.run(GUARD + USE_CUPY, path, capability=capability, env=env)
    assert (ran.out, ran.err) == ([""], "")


def test_old_gpu_is_told_to_take_cuda_12(made):
    program = made(cuda="13.x")
    ran = program.run(GUARD + USE_CUPY, program.nvrtc((13, 0)), capability="6.1")
    assert ran.warned == ["CG897"]
    assert "its NVRTC 13.0 does not support sm_61." in ran.err
    assert "install cupy for CUDA 12: CUDA 13 does not support this GPU" in ran.err
    assert "run: pip uninstall -y cupy-cuda13x && pip install 'cupy-cuda12x[ctk]'" in ran.err


def test_cupy_after_torch_has_loaded_that_nvrtc(made):
    """It is known at the import already: devices by the driver, NVRTC by its file."""
    program = made()
    program.torch(preloads=True, nvrtc=(12, 8), flags="sm_100")
    code = f"{GUARD}import torch\ntorch.cuda.init()\nimport cupy  # cupy\nprint(*told())"
    ran = program.run(code, capability="10.3")
    assert "CG897" in ran.warned
    assert program.where("cupy") in ran.err
    assert "its NVRTC 12.8 does not support sm_103" in ran.err


def test_nobody_is_asked_for_devices(made):
    """Neither CUDA is initialized nor NVML loaded for the sake of it."""
    program = made()
    code = (
        f"{GUARD}import cupy\nfrom cuda.pathfinder import load\nload(sys.argv[1])\nprint(*told())"
    )
    ran = program.run(code, program.nvrtc((12, 4)), capability="12.0")
    assert (ran.out, ran.err, ran.calls) == ([""], "", [])


def test_nvml_that_is_there_is_asked(made):
    program = made()
    code = (
        f"{GUARD}import ctypes\nctypes.CDLL('libnvidia-ml.so.1')\nimport cupy\n"
        "from cuda.pathfinder import load\nload(sys.argv[1])\nprint(*told())"
    )
    ran = program.run(code, program.nvrtc((12, 4)), capability="12.0")
    assert ran.warned == ["CG897"]
    assert not [call for call in ran.calls if call.startswith("cu")]


def test_it_is_told_once(made):
    program = made()
    again = USE_CUPY + "cupy.cuda.compiler.use(sys.argv[1])\nprint(*told())"
    ran = program.run(GUARD + again, program.nvrtc((12, 4)), capability="12.0")
    assert (ran.out, ran.warned) == (["CG897", "CG897"], ["CG897"])


@pytest.mark.parametrize(
    ("error", "capability", "words"),
    [
        ("CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image is available", "12.0",
         "CuPy with NVRTC 12.4 compiles for sm_90"),
        ("CompileException: nvrtc: error: invalid value for --gpu-architecture (-arch)", "3.5",
         "its NVRTC 12.4 does not support sm_35"),
        ("nvrtc: error: invalid value for --gpu-architecture (-arch)", "3.5",
         "its NVRTC 12.4 does not support sm_35"),
    ],
)  # fmt: skip
def test_error_of_cupy_is_explained_by_what_is_there(made, error, capability, words):
    """As with CuPy 13, whose NVRTC is loaded past Python: there is no warning before."""
    program = made("13.6.0")
    code = (
        "import cupy, _ctypes\ncudaguard.install()\n_ctypes.dlopen(sys.argv[1], 2)\n"
        "driver().cuInit(0)\ntry:\n    with cudaguard.guard():\n"
        f"        raise RuntimeError({error!r})\n"
        "except RuntimeError as error: print(*getattr(error, '__notes__', ['3.9']))"
    )
    ran = program.run(code, program.nvrtc((12, 4)), capability=capability)
    assert ran.out == ["3.9"] or words in "".join(ran.out)


def nvjitlink(program, release):
    path = program.site / "nvidia/nvjitlink/lib/libnvJitLink.so.12"
    program.compile(path, "int f;", "-Wl,-soname,libnvJitLink.so.12")
    (program.site / f"nvidia_nvjitlink_cu12-{release}.dist-info").mkdir()
    return path


def test_numba_is_told_of_when_it_loads_its_nvrtc(made):
    program = made()
    ran = program.run(GUARD + USE_NUMBA, program.nvrtc((12, 4)), capability="12.0")
    assert ran.warned == ["CG898"]
    assert program.where("use") in ran.err
    assert "its NVRTC 12.4 does not support sm_120." in ran.err
    assert "Can't use arch-specific compute_120a" in ran.err
    assert (
        "run: pip install 'nvidia-cuda-nvrtc-cu12==12.8.*' 'nvidia-cuda-nvcc-cu12==12.8.*' "
        "'nvidia-nvjitlink-cu12==12.8.*'\n" in ran.err
    )


def test_numba_whose_nvjitlink_is_older(made):
    program = made()
    files = program.nvrtc((12, 9)), nvjitlink(program, "12.4.127")
    ran = program.run(GUARD + USE_NUMBA, *files, capability="12.0")
    assert ran.warned == ["CG898"]
    assert "its nvJitLink 12.4 does not support sm_120." in ran.err
    assert "install NVRTC, NVVM and nvJitLink of CUDA 12.8" in ran.err


def test_two_compilers_of_numba_are_told_of_once(made):
    program = made()
    files = program.nvrtc((12, 4)), nvjitlink(program, "12.4.127")
    ran = program.run(GUARD + USE_NUMBA, *files, capability="12.0")
    assert ran.warned == ["CG898"]


@pytest.mark.parametrize(
    ("nvrtc", "release", "numba", "env"),
    [
        ((12, 9), "12.9.86", "0.30.4", {}),
        ((12, 4), "12.4.127", "0.30.4", {"NUMBA_FORCE_CUDA_CC": "9.0"}),
        ((12, 4), "12.4.127", "0.20.1", {}),  # of which it was not read what it asks for
    ],
)
def test_healthy_numba_is_not_spoken_of(made, nvrtc, release, numba, env):
    program = made(numba=numba)
    files = program.nvrtc(nvrtc), nvjitlink(program, release)
    env = {"PYTHONPATH": str(program.site), **env}
    ran = program.run(GUARD + USE_NUMBA, *files, capability="12.1", env=env)
    assert (ran.out, ran.err) == ([""], "")


def test_old_gpu_is_told_to_take_numba_for_cuda_12(made):
    program = made(cuda="13.x")
    ran = program.run(GUARD + USE_NUMBA, program.nvrtc((13, 0)), capability="7.0")
    assert ran.warned == ["CG898"]
    assert "GPU compute capability 7.0 is not supported" in ran.err
    assert "run: pip install 'numba-cuda[cu12]'" in ran.err
